"""The output of a process: one thread reads and keeps it, others can wait for it."""

from __future__ import annotations

import threading

# More than an error or a report shows of it.
OUTPUT_KEPT_BYTES = 64 * 1024


class Output:
    """The end of what one process said, and its status once it ended."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._kept = bytearray()
        self._status: int | None = None
        self._changed = threading.Condition()

    def add(self, said: bytes) -> None:
        """Take what it said."""
        with self._changed:
            self._kept = (self._kept + said)[-OUTPUT_KEPT_BYTES:]
            self._changed.notify_all()

    def end(self, status: int) -> None:
        """Take its status: it ended, and says no more."""
        with self._changed:
            self._status = status
            self._changed.notify_all()

    @property
    def status(self) -> int | None:
        """Status with which it ended; None while it lives."""
        with self._changed:
            return self._status

    def text(self) -> str:
        """Return the last 64 KiB of what it said."""
        with self._changed:
            return self._kept.decode(errors="replace")

    def wait_text(self, text: str, timeout_s: float) -> bool:
        """Wait until it said `text`; False where it ended or the time ran out before."""
        wanted = text.encode()
        with self._changed:
            self._changed.wait_for(lambda: wanted in self._kept or self._status is not None, timeout_s)
            return wanted in self._kept

    def wait_end(self, timeout_s: float) -> int | None:
        """Wait for its end and return its status; None where the time ran out."""
        with self._changed:
            self._changed.wait_for(lambda: self._status is not None, timeout_s)
            return self._status
