"""Passwords, of which only the Argon2id hash is kept."""

from __future__ import annotations

import secrets
import threading
from base64 import b64encode

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from ringroad_lab.errors import LabError

MIN_PASSWORD_CHARACTERS = 10
# Longer ones only cost time.
MAX_PASSWORD_CHARACTERS = 1000

# The library's defaults are those of RFC 9106 for little memory: 64 MiB each.
_HASHER = PasswordHasher()
# So many at once: a crowd at the login page must not take the machine's memory.
_TURNS = threading.BoundedSemaphore(2)


def _hash_of_nobody() -> str:
    """Return a hash to check against where there is none: a name that does not exist takes as long as a wrong password.

    It is drawn, not calculated, so that the first such name takes no longer either.
    """
    costs = f"m={_HASHER.memory_cost},t={_HASHER.time_cost},p={_HASHER.parallelism}"
    salt, digest = (b64encode(secrets.token_bytes(length)).decode().rstrip("=") for length in (_HASHER.salt_len, _HASHER.hash_len))
    return f"$argon2id$v=19${costs}${salt}${digest}"


def hash_password(password: str) -> str:
    """Hash a password.

    Raises:
        LabError: it is too short or too long.
    """
    if not MIN_PASSWORD_CHARACTERS <= len(password) <= MAX_PASSWORD_CHARACTERS:
        raise LabError(f"a password has {MIN_PASSWORD_CHARACTERS} to {MAX_PASSWORD_CHARACTERS} characters")
    with _TURNS:
        return _HASHER.hash(password)


def is_password(password_hash: str | None, password: str) -> bool:
    """Whether this is the password of the hash; never, where there is no hash, and just as slowly."""
    if len(password) > MAX_PASSWORD_CHARACTERS:
        return False
    with _TURNS:
        try:
            return _HASHER.verify(password_hash or _hash_of_nobody(), password) and password_hash is not None
        except (VerificationError, InvalidHashError):
            return False
