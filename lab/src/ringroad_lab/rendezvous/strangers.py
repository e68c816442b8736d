"""Limits connections that have not proved that they know the secret: a few at a time, each for a short time, and counted."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MAX_PLACES = 64
_REPORTED_EVERY_S = 60.0
# An IPv6 network of this size usually has one user, so its addresses count as one.
_IPV6_NETWORK_BITS = 64


class Stranger:
    """An unauthenticated connection that holds a place."""

    def __init__(self, writer: asyncio.StreamWriter, source: str, strangers: Strangers) -> None:
        """Take the connection and its source address."""
        self.writer = writer
        self.source = source
        self._strangers = strangers

    def count(self) -> None:
        """Count a connection with a wrong secret."""
        self._strangers.count(self.source)


class Strangers:
    """The places of unauthenticated connections. If all are taken, the address with most places loses its oldest connection."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Take the function that reports wrong secrets."""
        self._say = say
        self._places: list[Stranger] = []
        self._wrong = 0
        self._reported_at = float("-inf")

    @contextmanager
    def place(self, writer: asyncio.StreamWriter) -> Iterator[Stranger]:
        """Give a connection a place until it is authenticated."""
        stranger = Stranger(writer, _source(writer), self)
        self._places.append(stranger)
        if len(self._places) > MAX_PLACES:
            (source, _), *_ = Counter(each.source for each in self._places).most_common(1)
            oldest = next(each for each in self._places if each.source == source)
            self._places.remove(oldest)
            oldest.writer.transport.abort()
        try:
            yield stranger
        finally:
            if stranger in self._places:
                self._places.remove(stranger)

    def count(self, source: str) -> None:
        """Count a connection with a wrong secret, and report the count from time to time."""
        self._wrong += 1
        now = time.monotonic()
        if now - self._reported_at >= _REPORTED_EVERY_S:
            self._say(f"{self._wrong} connections with a wrong secret so far, the last from {source}")
            self._reported_at = now


def _source(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    except (ValueError, TypeError, IndexError):
        return "an unknown address"
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, _IPV6_NETWORK_BITS), strict=False))
    return str(address)
