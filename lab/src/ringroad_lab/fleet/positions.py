"""Positions up to which polled sources have been read, in the store."""

from __future__ import annotations

import time
from collections.abc import Callable

from ringroad_lab.fleet import tables
from ringroad_lab.fleet.rows import insert
from ringroad_lab.store.result_store import ResultStore


class Positions:
    """Reads and writes the source positions of a store. Every method raises StoreError if the database fails."""

    def __init__(self, store: ResultStore, clock: Callable[[], float] = time.time) -> None:
        """Take the store and a clock (seconds since 1970)."""
        self._store = store
        self._clock = clock

    def get(self, source: str, part: str) -> int | None:
        """Return how far a part of a source has been read; None if it has not been read."""
        with self._store.reading() as session:
            row = session.get(tables.SourcePosition, (source, part))
            return row.position if row else None

    def remember(self, source: str, part: str, position: int) -> None:
        """Store how far a part of a source has been read: everything up to there is in the store."""
        with self._store.writing() as session:
            values = {"position": position, "changed_at": self._clock()}
            made = insert(session, tables.SourcePosition).values(source=source, part=part, **values)
            session.execute(
                made.on_conflict_do_update(index_elements=["source", "part"], set_=values), execution_options={"synchronize_session": False}
            )
