"""A limit to guessing passwords: so many failures by an address, and so many for an account, in a while."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable

WINDOW_S = 300.0
MAX_FAILURES_BY_ADDRESS = 10
# More, so that one guesser does not lock the owner out at once; few enough to make guessing hopeless.
MAX_FAILURES_FOR_ACCOUNT = 30
# What is remembered; the oldest goes.
_MAX_KEYS = 10_000


class LoginLimit:
    """Counts failures. Kept in memory: there is one server process."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Take what tells the time, s."""
        self._clock = clock
        self._failures: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait_s(self, address: str, account: str) -> float:
        """Return how long no further attempt is allowed, s; 0 where one is."""
        with self._lock:
            return max(
                self._wait_s(("address", address), MAX_FAILURES_BY_ADDRESS), self._wait_s(("account", account), MAX_FAILURES_FOR_ACCOUNT)
            )

    def count_failure(self, address: str, account: str) -> None:
        """Take note of a failure."""
        with self._lock:
            for key in (("address", address), ("account", account)):
                self._failures.setdefault(key, deque(maxlen=MAX_FAILURES_FOR_ACCOUNT)).append(self._clock())
                self._failures.move_to_end(key)
            while len(self._failures) > _MAX_KEYS:
                self._failures.popitem(last=False)

    def forget(self, address: str, account: str) -> None:
        """Forget the failures: the right password was given."""
        with self._lock:
            self._failures.pop(("address", address), None)
            self._failures.pop(("account", account), None)

    def _wait_s(self, key: tuple[str, str], limit: int) -> float:
        recent = [at for at in self._failures.get(key, ()) if at > self._clock() - WINDOW_S]
        return recent[-limit] + WINDOW_S - self._clock() if len(recent) >= limit else 0.0
