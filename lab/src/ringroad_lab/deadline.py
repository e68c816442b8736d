"""Waiting for conditions without an event."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], timeout_s: float, pause_s: float = 0.02) -> bool:
    """Ask again and again; False where the time ran out before the answer was yes. Asks once at least."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause_s)
    return True


def wait_until_none(left: Callable[[], list[str]], timeout_s: float, pause_s: float = 0.02) -> list[str]:
    """Ask again and again what is left to wait for; return that of the last answer: nothing, or the time ran out."""
    last: list[str] = []

    def is_none() -> bool:
        last[:] = left()
        return not last

    wait_until(is_none, timeout_s, pause_s)
    return last
