"""Polls for conditions that have no event."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], timeout_s: float, pause_s: float = 0.02) -> bool:
    """Poll a condition, at least once; return False if it did not become true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause_s)
    return True


def wait_until_none(left: Callable[[], list[str]], timeout_s: float, pause_s: float = 0.02) -> list[str]:
    """Poll until `left` returns nothing, or the time runs out; return its last result."""
    last: list[str] = []

    def is_none() -> bool:
        last[:] = left()
        return not last

    wait_until(is_none, timeout_s, pause_s)
    return last
