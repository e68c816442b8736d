"""Stores to test with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ringroad_lab.store.result_store import ResultStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store can be."""
    return tmp_path / "new folder" / "results.db"


@pytest.fixture
def store(path: Path) -> Iterator[ResultStore]:
    """An empty store."""
    with ResultStore(str(path)) as store:
        yield store
