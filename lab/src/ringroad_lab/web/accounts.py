"""Users, who log in, and tokens, by which programs send results."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from time import time

from sqlalchemy import select

from ringroad_lab.errors import LabError, StoreError
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.web.audit import COMMAND_LINE, Action, append
from ringroad_lab.web.passwords import hash_password, is_password
from ringroad_lab.web.tables import ApiToken, User

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
# So that people, and programs that look for secrets, know one when they see it.
TOKEN_PREFIX = "ringroad-lab_"


def check_name(name: str) -> None:
    """Check the name of a user or token.

    Raises:
        LabError: it is none.
    """
    if not _NAME.fullmatch(name):
        raise LabError(f"name {name!r}: up to 64 letters, digits and . _ @ -, beginning with a letter or digit")


def set_password(store: ResultStore, name: str, password: str) -> bool:
    """Add a user, or give one another password, which ends the user's sessions. Return whether the user is new.

    Raises:
        LabError: name or password are not what they may be.
    """
    check_name(name)
    password_hash = hash_password(password)
    with store.writing() as database:
        user = database.get(User, name)
        if user is None:
            database.add(User(name=name, password_hash=password_hash, session_stamp=_new_stamp(), added_at=time()))
        else:
            user.password_hash = password_hash
            user.session_stamp = _new_stamp()
        append(database, time(), COMMAND_LINE, Action.USER_ADDED if user is None else Action.PASSWORD_SET, new=name)
    return user is None


def user_names(store: ResultStore) -> Sequence[str]:
    """Return the names of all users."""
    with store.reading() as database:
        return database.scalars(select(User.name).order_by(User.name)).all()


def remove_user(store: ResultStore, name: str) -> None:
    """Remove a user, whose sessions end; what the user did stays.

    Raises:
        StoreError: there is no such user.
    """
    with store.writing() as database:
        user = database.get(User, name)
        if user is None:
            raise StoreError(f"there is no user {name!r}; `ringroad-lab user list` shows all")
        database.delete(user)
        append(database, time(), COMMAND_LINE, Action.USER_REMOVED, old=name)


def log_in(store: ResultStore, name: str, password: str) -> str | None:
    """Return the stamp for a new session; None where name or password are wrong."""
    with store.reading() as database:
        user = database.get(User, name) if _NAME.fullmatch(name) else None
        password_hash, stamp = (user.password_hash, user.session_stamp) if user else (None, None)
    return stamp if is_password(password_hash, password) else None


def is_logged_in(store: ResultStore, name: str, stamp: str) -> bool:
    """Whether a session with this stamp still holds."""
    with store.reading() as database:
        return database.scalar(select(User.session_stamp).where(User.name == name)) == stamp


def log_out(store: ResultStore, name: str) -> None:
    """End all sessions of a user."""
    with store.writing() as database:
        user = database.get(User, name)
        if user is not None:
            user.session_stamp = _new_stamp()


def add_token(store: ResultStore, name: str) -> str:
    """Make a token, and return it: it is not kept.

    Raises:
        LabError: the name is none, or taken.
    """
    check_name(name)
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    with store.writing() as database:
        if database.get(ApiToken, name) is not None:
            raise LabError(f"there is a token {name!r} already: remove it first, or take another name")
        database.add(ApiToken(name=name, digest=_digest(token), added_at=time()))
        append(database, time(), COMMAND_LINE, Action.TOKEN_ADDED, new=name)
    return token


def token_names(store: ResultStore) -> Sequence[str]:
    """Return the names of all tokens."""
    with store.reading() as database:
        return database.scalars(select(ApiToken.name).order_by(ApiToken.name)).all()


def remove_token(store: ResultStore, name: str) -> None:
    """Remove a token: it is good for nothing from now on.

    Raises:
        StoreError: there is no such token.
    """
    with store.writing() as database:
        token = database.get(ApiToken, name)
        if token is None:
            raise StoreError(f"there is no token {name!r}; `ringroad-lab token list` shows all")
        database.delete(token)
        append(database, time(), COMMAND_LINE, Action.TOKEN_REMOVED, old=name)


def token_name(store: ResultStore, token: str) -> str | None:
    """Return the name of a token; None where it is not one."""
    if not token.startswith(TOKEN_PREFIX):
        return None
    with store.reading() as database:
        return database.scalar(select(ApiToken.name).where(ApiToken.digest == _digest(token)))


def _new_stamp() -> str:
    return secrets.token_hex(16)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
