"""The points of a sweep over message sizes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """Result of one message size."""

    size_bytes: int
    """Size of the block that the program sends, without headers."""
    latency_ns: float
    """One-way latency: half the round-trip time."""

    @property
    def throughput_bps(self) -> float:
        """Bits per second with one block in flight at a time."""
        return 8 * self.size_bytes * 1e9 / self.latency_ns
