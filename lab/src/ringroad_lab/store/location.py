"""The location of the store: an SQLite file, or the URL of a database."""

from __future__ import annotations

import os
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from ringroad_lab.errors import StoreError

# Parameter of the socket where PostgreSQL listens on this machine.
_SOCKET = "unix_sock"


def default_path() -> Path:
    """Return the default SQLite file."""
    data_home = os.environ.get("XDG_DATA_HOME", "")
    # The XDG specification requires that relative paths are ignored.
    folder = Path(data_home) if os.path.isabs(data_home) else Path.home() / ".local" / "share"
    return folder / "ringroad-lab" / "results.db"


def parse_location(location: str | None) -> URL:
    """Parse a path or a URL; None is the default path.

    Raises:
        StoreError: the location is neither a path nor a valid URL.
    """
    if location is None:
        return URL.create("sqlite", database=str(default_path()))
    if "://" not in location:
        if not location:
            raise StoreError("the name of the result store is empty: name a file, or postgresql://USER:PASSWORD@HOST/DATABASE")
        return URL.create("sqlite", database=str(Path(location).absolute()))
    try:
        url = make_url(location)
    except (ArgumentError, ValueError):
        # The error text can contain a password.
        raise StoreError("invalid URL of the result store: write postgresql://USER:PASSWORD@HOST/DATABASE") from None
    if unknown := set(url.query) - {_SOCKET}:
        raise StoreError(f"unknown parameter {min(unknown)!r} in the URL of the result store: only {_SOCKET} is allowed")
    if url.drivername in ("postgresql", "postgres", "postgresql+pg8000"):
        return url.set(drivername="postgresql+pg8000")
    if url.drivername == "sqlite" and url.database:
        return url
    raise StoreError(f"result store {url.render_as_string()}: not a valid location: write the path of an SQLite file, or postgresql://...")
