"""Limits connections that have not proved that they know the secret: a few at a time, each for a short time, and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ringroad_lab.crowd import Complaints, Places, source_of

MAX_PLACES = 64


class Strangers:
    """The places of unauthenticated connections."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Take the function that reports wrong secrets."""
        self._places: Places[asyncio.WriteTransport] = Places(MAX_PLACES, lambda transport, _: transport.abort())
        self._wrong = Complaints("connections with a wrong secret", say)

    @contextmanager
    def place(self, writer: asyncio.StreamWriter) -> Iterator[Callable[[], None]]:
        """Give a connection a place until it is authenticated; yield the function that counts its wrong secret."""
        address = writer.get_extra_info("peername")
        self._places.take(writer.transport, address)
        try:
            yield lambda: self._wrong.count(source_of(address))
        finally:
            self._places.free(writer.transport)
