"""Shared parts of all pages: the store, permissions, and rendering."""

from __future__ import annotations

import hmac
from collections import Counter
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse

from ringroad_lab.fleet.requests import Requests
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.web.settings import WebSettings
from ringroad_lab.web.templating import ENVIRONMENT
from ringroad_lab.web.tokens import digest, is_name, token_name

# What a session holds: the digest of the token that was its login.
_SESSION_DIGEST = "token"


class LoginNeededError(Exception):
    """The page is for those who are logged in."""


@dataclass(frozen=True)
class Visitor:
    """Who asks."""

    user: str | None
    """None where nobody is logged in."""


class Site:
    """What all pages share."""

    def __init__(self, store: ResultStore, settings: WebSettings) -> None:
        """Take the store, and what is set."""
        self.store = store
        self.requests = Requests(store, settings.clock)
        self.refused: Counter[str] = Counter()
        """Messages with a wrong signature, by source: since the server's start, as strangers are to have nothing written."""
        self.settings = settings

    def is_owner(self, token: str) -> bool:
        """Whether a token is that of the server's owner."""
        return bool(self.settings.owner_token) and hmac.compare_digest(digest(token), digest(self.settings.owner_token))

    def log_in(self, request: Request, token: str) -> bool:
        """Begin a session of the token's owner; False where there is no such token."""
        if self._name_of(digest(token)) is None:
            return False
        request.session[_SESSION_DIGEST] = digest(token)
        return True

    def visitor(self, request: Request) -> Visitor:
        """Return who asks: whom the proxy names, else who is logged in here."""
        if self.settings.proxy_token_name and self._shown_name(request) == self.settings.proxy_token_name:
            name = request.headers.get(self.settings.proxy_header, "")
            return Visitor(name if is_name(name) else None)
        token_digest = request.session.get(_SESSION_DIGEST)
        return Visitor(self._name_of(token_digest) if isinstance(token_digest, str) else None)

    def _name_of(self, token_digest: str) -> str | None:
        # In constant time: the digest that a session shows was signed by this server, but one at a login was not.
        if self.settings.owner_token and hmac.compare_digest(token_digest, digest(self.settings.owner_token)):
            return self.settings.owner
        return token_name(self.store, token_digest)

    def _shown_name(self, request: Request) -> str | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        return token_name(self.store, digest(token.strip())) if scheme.lower() == "bearer" else None

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
        """Return the name of the token that a program shows; None where it shows none that is good.

        The proxy's own token says only that a request comes from the proxy.
        """
        name = self._shown_name(request)
        return name if name != self.settings.proxy_token_name else None

    def page(self, request: Request, template: str, visitor: Visitor, *, status: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401
        """Make a page."""
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        text = ENVIRONMENT.get_template(template).render(
            visitor=visitor,
            path=request.url.path,
            target=target if request.method == "GET" else "/runs",
            is_readable=visitor.user is not None or self.settings.public_read,
            **values,
        )
        return HTMLResponse(text, status_code=status)
