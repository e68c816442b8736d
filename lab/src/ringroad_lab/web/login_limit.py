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

    def attempt(self, address: str, account: str) -> float:
        """Return how long no attempt is allowed, s; 0 where one is.

        That one counts as a failure from now on, so that many at once are no way around the limit, until it is forgotten.
        """
        limits = {("address", address): MAX_FAILURES_BY_ADDRESS, ("account", account): MAX_FAILURES_FOR_ACCOUNT}
        with self._lock:
            wait_s = max(self._wait_s(key, limit) for key, limit in limits.items())
            if wait_s > 0:
                return wait_s
            for key in limits:
                self._failures.setdefault(key, deque(maxlen=MAX_FAILURES_FOR_ACCOUNT)).append(self._clock())
                self._failures.move_to_end(key)
            while len(self._failures) > _MAX_KEYS:
                self._failures.popitem(last=False)
        return 0.0

    def forget(self, address: str, account: str) -> None:
        """Forget the failures: the right password was given."""
        with self._lock:
            self._failures.pop(("address", address), None)
            self._failures.pop(("account", account), None)

    def _wait_s(self, key: tuple[str, str], limit: int) -> float:
        recent = [at for at in self._failures.get(key, ()) if at > self._clock() - WINDOW_S]
        return recent[-limit] + WINDOW_S - self._clock() if len(recent) >= limit else 0.0
