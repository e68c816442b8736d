"""A limit to guessing passwords: after some failures each further one makes the next attempt wait twice as long.

Failures count for an account from one source, and for a source over all accounts. Who fails elsewhere never makes the owner of an account
wait, and a login of one's own buys no guesses at the accounts of others.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Network, ip_address

# Longer without a failure, and those before are forgotten.
MEMORY_S = 3600.0
# What is remembered; the oldest goes. A source alone cannot fill this: it has to wait long before.
_MAX_KEYS = 10_000
# A doubling more is beyond any wait, and its number has an end.
_MAX_DOUBLINGS = 30


@dataclass(frozen=True)
class Patience:
    """How failures become a wait."""

    free_failures: int
    """After so many the next attempt waits, 1 s at first."""
    max_wait_s: float

    def wait_s(self, failures: int) -> float:
        """Return how long after the last of so many failures no attempt is allowed, s."""
        doublings = failures - self.free_failures
        return min(self.max_wait_s, 2.0 ** min(doublings, _MAX_DOUBLINGS)) if doublings >= 0 else 0.0


WITH_ACCOUNT = Patience(free_failures=5, max_wait_s=900.0)
# Many people may share an address: more failures, and a shorter wait.
WITH_SOURCE = Patience(free_failures=20, max_wait_s=60.0)


@dataclass
class _Failures:
    count: int
    last_at: float


class LoginLimit:
    """Counts failures. Kept in memory: there is one server process."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Take what tells the time, s."""
        self._clock = clock
        self._failures: OrderedDict[tuple[str, ...], _Failures] = OrderedDict()
        self._lock = threading.Lock()

    def attempt(self, address: str, account: str) -> float:
        """Return how long no attempt is allowed, s; 0 where one is.

        That one counts as a failure from now on, so that many at once are no way around the limit, until it is said to have succeeded.
        """
        source = _source(address)
        with self._lock:
            now = self._clock()
            wait_s = max(self._wait_s((source, account), WITH_ACCOUNT, now), self._wait_s((source,), WITH_SOURCE, now))
            if wait_s > 0:
                return wait_s
            for key in ((source, account), (source,)):
                failures = self._failures.setdefault(key, _Failures(0, now))
                failures.count, failures.last_at = failures.count + 1, now
                self._failures.move_to_end(key)
            while len(self._failures) > _MAX_KEYS:
                self._failures.popitem(last=False)
        return 0.0

    def succeeded(self, address: str, account: str) -> None:
        """Forget the failures with this account from there: the right password was given. Those with other accounts stay."""
        source = _source(address)
        with self._lock:
            self._failures.pop((source, account), None)
            failures = self._failures.get((source,))
            if failures is not None:
                # This attempt was none.
                failures.count -= 1

    def _wait_s(self, key: tuple[str, ...], patience: Patience, now: float) -> float:
        failures = self._failures.get(key)
        if failures is None:
            return 0.0
        # A clock that was set back makes nobody wait longer.
        rested_s = max(0.0, now - failures.last_at)
        if rested_s > MEMORY_S:
            del self._failures[key]
            return 0.0
        return max(0.0, patience.wait_s(failures.count) - rested_s)


def _source(address: str) -> str:
    """Return who asks as far as an address tells: of IPv6 everybody has at least the last 64 bits to himself."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Network((found, 64), strict=False))
