"""Shared parts of all pages: the store, permissions, and rendering."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse

from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.web.accounts import is_logged_in, token_name
from ringroad_lab.web.login_limit import LoginLimit
from ringroad_lab.web.sessions import COOKIE_NAME, Session, SessionCookies, is_form_token
from ringroad_lab.web.settings import WebSettings
from ringroad_lab.web.templating import ENVIRONMENT


class LoginNeededError(Exception):
    """The page is for users alone."""


class ForgedFormError(Exception):
    """A form is not one that this server made for this browser, or too old."""


@dataclass(frozen=True)
class Visitor:
    """Who asks."""

    user: str | None
    """None where nobody is logged in."""
    session: Session | None = None


class Site:
    """What all pages share."""

    def __init__(self, store: ResultStore, settings: WebSettings) -> None:
        """Take the store, and what is set."""
        self.store = store
        self.settings = settings
        self.cookies = SessionCookies(settings.session_s, settings.clock)
        self.login_limit = LoginLimit(settings.clock)

    def visitor(self, request: Request) -> Visitor:
        """Return who asks."""
        session = self.cookies.read(request.cookies.get(COOKIE_NAME))
        if session is None or session.user is None or not is_logged_in(self.store, session.user, session.stamp):
            return Visitor(user=None, session=session if session is not None and session.user is None else None)
        return Visitor(user=session.user, session=session)

    def reader(self, request: Request) -> Visitor:
        """Return who asks, where reading is allowed.

        Raises:
            LoginNeededError: it is not.
        """
        visitor = self.visitor(request)
        if visitor.user is None and not self.settings.public_read:
            raise LoginNeededError
        return visitor

    def writer(self, request: Request) -> Visitor:
        """Return who is logged in.

        Raises:
            LoginNeededError: nobody.
        """
        visitor = self.visitor(request)
        if visitor.user is None:
            raise LoginNeededError
        return visitor

    def api_reader(self, request: Request) -> None:
        """Let through who may read: by login, or by token.

        Raises:
            LoginNeededError: reading is not allowed.
        """
        if self.token_name(request) is None:
            self.reader(request)

    def token_name(self, request: Request) -> str | None:
        """Return the name of the token that a program shows; None where it shows none that is good."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        return token_name(self.store, token.strip()) if scheme.lower() == "bearer" else None

    def check_form(self, visitor: Visitor, token: str) -> None:
        """Check that a form was made for this browser.

        Raises:
            ForgedFormError: it was not.
        """
        if not is_form_token(visitor.session, token):
            raise ForgedFormError

    def page(self, request: Request, template: str, visitor: Visitor, *, status: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401
        """Make a page."""
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        text = ENVIRONMENT.get_template(template).render(
            visitor=visitor,
            form_token=visitor.session.form_token if visitor.session else "",
            path=request.url.path,
            target=target if request.method == "GET" else "/runs",
            is_readable=visitor.user is not None or self.settings.public_read,
            **values,
        )
        return HTMLResponse(text, status_code=status)
