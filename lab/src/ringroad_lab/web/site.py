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

# The key in a session for the digest of the login's token.
_SESSION_DIGEST = "token"


class LoginNeededError(Exception):
    """The page requires a login."""


@dataclass(frozen=True)
class Visitor:
    """The sender of a request."""

    user: str | None
    """None: not logged in."""


class Site:
    """The store, permissions and rendering of all pages."""

    def __init__(self, store: ResultStore, settings: WebSettings) -> None:
        """Take the store and the settings."""
        self.store = store
        self.requests = Requests(store, settings.clock)
        self.refused: Counter[str] = Counter()
        """Number of messages with a wrong signature since the server's start, by source; not stored, since anyone can send them."""
        self.settings = settings

    def is_owner(self, token: str) -> bool:
        """Return whether a token is the token of the server's owner."""
        return bool(self.settings.owner_token) and hmac.compare_digest(digest(token), digest(self.settings.owner_token))

    def log_in(self, request: Request, token: str) -> bool:
        """Start a session for the token's owner; False if there is no such token."""
        if self._name_of(digest(token)) is None:
            return False
        request.session[_SESSION_DIGEST] = digest(token)
        return True

    def visitor(self, request: Request) -> Visitor:
        """Return the visitor: the user named by the proxy, else the user who is logged in here."""
        if self.settings.proxy_token_name and self._sent_token_name(request) == self.settings.proxy_token_name:
            name = request.headers.get(self.settings.proxy_header, "")
            return Visitor(name if is_name(name) else None)
        token_digest = request.session.get(_SESSION_DIGEST)
        return Visitor(self._name_of(token_digest) if isinstance(token_digest, str) else None)

    def _name_of(self, token_digest: str) -> str | None:
        # The comparison takes constant time: this server signed the digest of a session, but not the digest of a login.
        if self.settings.owner_token and hmac.compare_digest(token_digest, digest(self.settings.owner_token)):
            return self.settings.owner
        return token_name(self.store, token_digest)

    def _sent_token_name(self, request: Request) -> str | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        return token_name(self.store, digest(token.strip())) if scheme.lower() == "bearer" else None

    def reader(self, request: Request) -> Visitor:
        """Return the visitor if reading is allowed.

        Raises:
            LoginNeededError: reading is not allowed.
        """
        visitor = self.visitor(request)
        if visitor.user is None and not self.settings.public_read:
            raise LoginNeededError
        return visitor

    def writer(self, request: Request) -> Visitor:
        """Return the visitor if a user is logged in.

        Raises:
            LoginNeededError: no user is logged in.
        """
        visitor = self.visitor(request)
        if visitor.user is None:
            raise LoginNeededError
        return visitor

    def api_reader(self, request: Request) -> None:
        """Check that the sender is allowed to read, by login or by token.

        Raises:
            LoginNeededError: reading is not allowed.
        """
        if self.token_name(request) is None:
            self.reader(request)

    def token_name(self, request: Request) -> str | None:
        """Return the name of the token that a program sends; None if there is no valid token.

        The proxy's own token does not count: it only shows that a request comes from the proxy.
        """
        name = self._sent_token_name(request)
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
