"""The points of a sweep over message sizes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """One size of message."""

    size_bytes: int
    """Of the block as the program sends it, without headers."""
    latency_ns: float
    """One way: half the time to and fro."""

    @property
    def throughput_bps(self) -> float:
        """Bits that pass in a second while one block is under way at a time."""
        return 8 * self.size_bytes * 1e9 / self.latency_ns
