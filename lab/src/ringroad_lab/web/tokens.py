"""Tokens: users log in with them, and programs use them to send and read results."""

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
# Prefix by which users and secret scanners recognize a token.
_PREFIX = "ringroad-lab_"


def is_name(text: str) -> bool:
    """Return whether a text is a valid user or token name."""
    return _NAME.fullmatch(text) is not None


def new_token() -> str:
    """Create a token. It cannot be guessed: it has 256 random bits."""
    return _PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> str:
    """Return the digest under which a token is stored: its SHA-256, hexadecimal. A plain digest is safe for a long random token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def add_token(store: ResultStore, name: str) -> str:
    """Create a token, and return it: only its digest is stored.

    Raises:
        LabError: the name is invalid, or taken.
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
    """Remove a token: it becomes invalid, and its logins end.

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
    """Return the name of the token with this digest; None if there is none."""
    with store.reading() as database:
        return database.scalar(select(Token.name).where(Token.digest == token_digest))
