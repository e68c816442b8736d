"""A clock for tests."""

from __future__ import annotations

EPOCH = 1_700_000_000.0


class HandClock:
    """A time, seconds since 1970, that advances only when a test sets `now`."""

    def __init__(self) -> None:
        self.now = EPOCH

    def __call__(self) -> float:
        return self.now
