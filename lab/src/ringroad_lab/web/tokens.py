"""Tokens: people log in with one, and programs show one to send results and to read them."""

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
from ringroad_lab.web.tables import Token

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
# So that people, and programs that look for secrets, know one when they see it.
_PREFIX = "ringroad-lab_"


def is_name(text: str) -> bool:
    """Whether a text may name somebody."""
    return _NAME.fullmatch(text) is not None


def new_token() -> str:
    """Make a token. Nobody can guess it: it has 256 random bits."""
    return _PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> str:
    """Return what is kept of a token: its SHA-256, hexadecimal. A token is random and long, so a plain digest keeps it."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def add_token(store: ResultStore, name: str) -> str:
    """Make a token for somebody, and return it: it is not kept.

    Raises:
        LabError: the name is none, or taken.
    """
    if not is_name(name):
        raise LabError(f"name {name!r}: up to 64 letters, digits and . _ @ -, beginning with a letter or digit")
    token = new_token()
    with store.writing() as database:
        if database.get(Token, name) is not None:
            raise LabError(f"there is a token {name!r} already: remove it first, or take another name")
        database.add(Token(name=name, digest=digest(token), added_at=time()))
        append(database, time(), COMMAND_LINE, Action.TOKEN_ADDED, new=name)
    return token


def token_names(store: ResultStore) -> Sequence[str]:
    """Return the names of all tokens."""
    with store.reading() as database:
        return database.scalars(select(Token.name).order_by(Token.name)).all()


def remove_token(store: ResultStore, name: str) -> None:
    """Remove a token: it is good for nothing from now on, and its logins end.

    Raises:
        StoreError: there is no such token.
    """
    with store.writing() as database:
        token = database.get(Token, name)
        if token is None:
            raise StoreError(f"there is no token {name!r}; `ringroad-lab token list` shows all")
        database.delete(token)
        append(database, time(), COMMAND_LINE, Action.TOKEN_REMOVED, old=name)


def token_name(store: ResultStore, token_digest: str) -> str | None:
    """Return the name of the token with this digest; None where there is none."""
    with store.reading() as database:
        return database.scalar(select(Token.name).where(Token.digest == token_digest))
