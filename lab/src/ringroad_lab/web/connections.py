"""Bounds the connections to the web page: their number, and the time that a client can keep one waiting."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from ringroad_lab.crowd import Complaints, Places, source_of

MOST_CONNECTIONS = 256
"""Well below the usual limit of 1024 descriptors. A connection holds up to a message of a build system in memory, 1 MiB."""
HEAD_WITHIN_S = 10.0
EXCHANGE_WITHIN_S = 300.0
"""For the rest of a request and its answer: 64 MiB, the longest record of a run, at 2 Mbit/s."""

_LOG = logging.getLogger("uvicorn.error")
_LATE = (
    b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 33\r\n\r\n"
    b"The request did not end in time.\n"
)


class BoundedListener(socket.socket):
    """A listening socket. The source with most connections loses its oldest one if there are too many, during its TLS handshake, too."""

    def __init__(self, family: int, *, most: int = MOST_CONNECTIONS) -> None:
        """Make a socket that is not bound yet."""
        super().__init__(family, socket.SOCK_STREAM)
        self._places: Places[socket.socket] = Places(most, self._end)
        self._ended = Complaints(f"connections ended, because more than {most} were open", _LOG.warning)

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        connection, address = super().accept()
        self._places.free_where(lambda each: each.fileno() < 0)
        self._places.take(connection, address)
        return connection, address

    def _end(self, connection: socket.socket, source: str) -> None:
        self._ended.count(source)
        try:
            # Its transport notices, and closes it.
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


class TimedHttp(H11Protocol):
    """Uvicorn's HTTP, in which the head of a request must come within one time, and the rest and the answer must pass within another."""

    late = Complaints("connections ended, because their client kept them waiting", _LOG.warning)

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - as uvicorn calls it
        """Start without a connection."""
        super().__init__(*arguments, **options)
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Await the head of the first request."""
        super().connection_made(transport)
        self._end_within(HEAD_WITHIN_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Await nothing more."""
        self._end_within(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        self._follow(lambda: super(TimedHttp, self).data_received(data))

    def on_response_complete(self) -> None:
        """Await the head of the next request, once the client has taken the answer."""
        if not self.transport.get_write_buffer_size():
            self._end_within(HEAD_WITHIN_S)
        self._follow(super().on_response_complete)

    def _follow(self, work: Callable[[], None]) -> None:
        """Do work that may read the head of a request."""
        before = self.cycle
        work()
        if self.cycle is not before and not self.transport.is_closing():
            self._end_within(EXCHANGE_WITHIN_S)

    def _end_within(self, seconds: float | None) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._end)

    def _end(self) -> None:
        is_answered = self.cycle is None or self.cycle.response_complete
        is_due = self.conn.trailing_data[0] if is_answered else not self.cycle.response_started
        if is_due:
            self.transport.write(_LATE)
        # Browsers open connections that they may not need: these end without a word.
        if is_due or not is_answered or self.transport.get_write_buffer_size():
            self.late.count(source_of(self.client))
        self.transport.abort()
