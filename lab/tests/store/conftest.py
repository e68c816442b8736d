"""Stores to test with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hand_clock import HandClock
from own_postgresql import make_user, postgres_socket
from ringroad_lab.store.result_store import ResultStore

__all__ = ["postgres_socket"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a store that does not exist yet."""
    return tmp_path / "new folder" / "results.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The location of an empty store: a file or a database."""
    if request.param == "sqlite":
        return str(tmp_path / "results.db")
    address = request.getfixturevalue("postgres_socket")
    return f"postgresql://{make_user(address)}@/postgres?unix_sock={address}"


@pytest.fixture
def store(location: str) -> Iterator[ResultStore]:
    """An empty store."""
    with ResultStore(location) as store:
        yield store


@pytest.fixture
def clock() -> HandClock:
    """A clock that only the test advances."""
    return HandClock()
