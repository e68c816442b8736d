"""The output of a process: one thread reads and stores it, other threads can wait for it."""

from __future__ import annotations

import threading

# Limit of the kept output: more than an error message or a report shows.
OUTPUT_KEPT_BYTES = 64 * 1024


class Output:
    """Keeps the end of a process's output, and its status once it ended."""

    def __init__(self) -> None:
        """Start empty."""
        self._kept = bytearray()
        self._status: int | None = None
        self._changed = threading.Condition()

    def add(self, output: bytes) -> None:
        """Append output."""
        with self._changed:
            self._kept = (self._kept + output)[-OUTPUT_KEPT_BYTES:]
            self._changed.notify_all()

    def end(self, status: int) -> None:
        """Store the status of the process, which has ended and writes no more."""
        with self._changed:
            self._status = status
            self._changed.notify_all()

    @property
    def status(self) -> int | None:
        """Exit status; None while the process is running."""
        with self._changed:
            return self._status

    def text(self) -> str:
        """Return the last 64 KiB of the output."""
        with self._changed:
            return self._kept.decode(errors="replace")

    def wait_text(self, text: str, timeout_s: float) -> bool:
        """Wait until the output contains `text`; return False if the process ended or the wait timed out first."""
        wanted = text.encode()
        with self._changed:
            self._changed.wait_for(lambda: wanted in self._kept or self._status is not None, timeout_s)
            return wanted in self._kept

    def wait_end(self, timeout_s: float) -> int | None:
        """Wait for the end of the process and return its status; None if the wait timed out."""
        with self._changed:
            self._changed.wait_for(lambda: self._status is not None, timeout_s)
            return self._status
