"""A TCP proxy that cuts connections, refuses them, or keeps the bytes of a message to itself: a network that fails at the worst moment."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

_CHUNK_BYTES = 1 << 16


class FaultyProxy:
    """Listens on a port of its own; it may be used as a context."""

    def __init__(self, host: str, connect: Callable[[], socket.socket]) -> None:
        """Listen at an address, and take what connects to the server."""
        self._connect = connect
        self._listener = socket.create_server((host, 0))
        self.port: int = self._listener.getsockname()[1]
        self.is_refusing = False
        """Whether new connections end at once."""
        self.met = threading.Event()
        """Whether the message came that was waited for."""
        self._mark = b""
        self._cuts = False
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> FaultyProxy:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        # Closing it would not wake up who accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self.cut()

    def keep(self, mark: bytes) -> None:
        """Let no chunk pass, either way, that has these bytes in it: the connection stands still from there on, until it is cut."""
        self._arm(mark, cuts=False)

    def cut_at(self, mark: bytes) -> None:
        """Cut the connection at the first chunk that has these bytes in it, in place of handing it on; all others pass."""
        self._arm(mark, cuts=True)

    def cut(self) -> int:
        """Cut all connections, and keep nothing any more; return how many they were."""
        with self._lock:
            self._mark = b""
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            _cut(pair)
        return len(pairs)

    def _arm(self, mark: bytes, *, cuts: bool) -> None:
        with self._lock:
            self.met.clear()
            self._mark, self._cuts = mark, cuts

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
