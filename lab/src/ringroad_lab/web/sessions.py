"""The login of a browser: a signed cookie, of which the server keeps no copy.

Its key is made anew at each start of the server, so a restart ends all sessions. The token against forged forms is in the cookie too:
a form of another site can make the browser send the cookie, but cannot know what is in it.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable

from itsdangerous import BadData, URLSafeSerializer
from pydantic import ValidationError

from ringroad_lab.trial import Frozen

COOKIE_NAME = "ringroad_lab_session"


class Session(Frozen):
    """What the cookie says."""

    user: str | None = None
    """None before the login: the login form is guarded as well."""
    stamp: str = ""
    """As it was in the user's account at login; the account has another after logout or with a new password, and the session is over."""
    form_token: str
    ends_at: float
    """Seconds since 1970."""


class SessionCookies:
    """Makes and reads the cookie."""

    def __init__(self, lifetime_s: float, clock: Callable[[], float]) -> None:
        """Take how long sessions last, s, and what tells the time."""
        self._serializer = URLSafeSerializer(secrets.token_bytes(32), salt="session")
        self._lifetime_s = lifetime_s
        self._clock = clock

    @property
    def lifetime_s(self) -> float:
        """How long sessions last, s."""
        return self._lifetime_s

    def begin(self, user: str | None = None, stamp: str = "") -> Session:
        """Begin a session."""
        return Session(user=user, stamp=stamp, form_token=secrets.token_urlsafe(32), ends_at=self._clock() + self._lifetime_s)

    def write(self, session: Session) -> str:
        """Return the cookie's value."""
        value = self._serializer.dumps(session.model_dump())
        return value.decode() if isinstance(value, bytes) else value

    def read(self, value: str | None) -> Session | None:
        """Return what a cookie says; None where it is missing, forged or too old."""
        if not value:
            return None
        try:
            session = Session.model_validate(self._serializer.loads(value))
        except (BadData, ValidationError):
            return None
        return session if self._clock() < session.ends_at else None


def is_form_token(session: Session | None, token: str) -> bool:
    """Whether a form was made for this session."""
    return session is not None and hmac.compare_digest(session.form_token.encode(), token.encode("utf-8", "surrogatepass"))
