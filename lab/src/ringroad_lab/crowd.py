"""Bounds what strangers take of a server: how many of their connections are open at once, and how often the server reports them."""

from __future__ import annotations

import ipaddress
import time
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_REPORTED_EVERY_S = 60.0
# An IPv6 network of this size usually has one user, so its addresses count as one.
_IPV6_NETWORK_BITS = 64

Connection = TypeVar("Connection", bound=Hashable)


class Places(Generic[Connection]):
    """The places of connections. If all are taken, the source with most of them loses its oldest connection."""

    def __init__(self, most: int, end: Callable[[Connection, str], None]) -> None:
        """Take the number of places, and the function that ends a connection, given its source."""
        self._most = most
        self._end = end
        self._sources: dict[Connection, str] = {}

    def take(self, connection: Connection, address: object) -> None:
        """Give a place to a new connection from an address, as the socket module has it."""
        self._sources[connection] = source_of(address)
        if len(self._sources) > self._most:
            (source, _), *_ = Counter(self._sources.values()).most_common(1)
            oldest = next(each for each, its_source in self._sources.items() if its_source == source)
            del self._sources[oldest]
            self._end(oldest, source)

    def free(self, connection: Connection) -> None:
        """Take back the place of a connection, if it has one."""
        self._sources.pop(connection, None)

    def free_where(self, is_over: Callable[[Connection], bool]) -> None:
        """Take back the places of connections that are over."""
        for connection in [each for each in self._sources if is_over(each)]:
            self.free(connection)


class Complaints:
    """Counts events that strangers cause, and reports the count at most once a minute."""

    def __init__(self, what: str, say: Callable[[str], None]) -> None:
        """Take the name of the events, and the function that reports them."""
        self._what = what
        self._say = say
        self._count = 0
        self._reported_at = float("-inf")

    def count(self, source: str) -> None:
        """Count an event."""
        self._count += 1
        now = time.monotonic()
        if now - self._reported_at >= _REPORTED_EVERY_S:
            self._say(f"{self._what}: {self._count} so far, the last from {source}")
            self._reported_at = now


def source_of(address: object) -> str:
    """Return whom an address of the socket module belongs to: an IPv4 address or an IPv6 network."""
    try:
        ip = ipaddress.ip_address(str(address[0]).partition("%")[0])  # type: ignore[index]
    except (ValueError, TypeError, IndexError):
        return "an unknown address"
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ip.ipv4_mapped or ipaddress.ip_network((ip, _IPV6_NETWORK_BITS), strict=False))
    return str(ip)
