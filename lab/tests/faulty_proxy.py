"""A TCP proxy that cuts connections, refuses them, or holds messages back, to simulate a network that fails at the worst moment."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_CHUNK_BYTES = 1 << 16


def to_unix(path: Path) -> Callable[[], socket.socket]:
    """Return a function that connects to a Unix socket."""

    def connect() -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.connect(str(path))
        return made

    return connect


class FaultyProxy:
    """Listens on its own port; can be used as a context manager."""

    def __init__(self, host: str, connect: Callable[[], socket.socket]) -> None:
        """Listen at an address; `connect` opens connections to the server."""
        self._connect = connect
        self._listener = socket.create_server((host, 0))
        self.port: int = self._listener.getsockname()[1]
        self.is_refusing = False
        """Whether new connections are closed at once."""
        self.met = threading.Event()
        """Set when a chunk with the expected bytes has arrived."""
        self._mark = b""
        self._cuts = False
        self._resets = False
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> FaultyProxy:
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        # Closing the listener would not wake up `accept`.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self.cut()

    def keep(self, mark: bytes) -> None:
        """Hold back the first chunk, in either direction, that contains these bytes, and all later ones, until the connection is cut."""
        self._arm(mark, cuts=False)

    def cut_at(self, mark: bytes, *, resets: bool = False) -> None:
        """Cut the connection, or reset it, at the first chunk that contains these bytes, without forwarding it; all others pass."""
        self._arm(mark, cuts=True, resets=resets)

    def cut(self) -> int:
        """Cut all connections, and stop holding chunks back; return the number of connections."""
        with self._lock:
            self._mark = b""
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            _cut(pair)
        return len(pairs)

    def _arm(self, mark: bytes, *, cuts: bool, resets: bool = False) -> None:
        with self._lock:
            self.met.clear()
            self._mark, self._cuts, self._resets = mark, cuts, resets

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_refusing:
                client.close()
                continue
            try:
                server = self._connect()
            except OSError:
                client.close()
                continue
            pair = (client, server)
            with self._lock:
                self._pairs.add(pair)
            for source, sink in (pair, pair[::-1]):
                threading.Thread(target=self._pump, args=(source, sink, pair), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, pair: tuple[socket.socket, socket.socket]) -> None:
        is_kept = False
        with suppress(OSError):
            while chunk := source.recv(_CHUNK_BYTES):
                with self._lock:
                    is_met = bool(self._mark) and self._mark in chunk
                    if is_met and self._cuts:
                        self._mark = b""
                if is_met:
                    self.met.set()
                    if self._cuts:
                        if self._resets:
                            # A socket that is closed without time to linger resets the connection.
                            source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                            source.close()
                        break
                    is_kept = True
                if not is_kept:
                    sink.sendall(chunk)
        _cut(pair)
        source.close()
        with self._lock:
            self._pairs.discard(pair)


def _cut(pair: tuple[socket.socket, socket.socket]) -> None:
    for each in pair:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
