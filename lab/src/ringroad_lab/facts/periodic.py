"""Series of samples, taken every second in a separate thread."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from ringroad_lab.record import Series

MACHINE = "machine"
# Limit for a series: an hour of seconds. Beyond it, every second point is dropped.
MOST_POINTS = 3600


class PeriodicSampler(ABC):
    """Samples during the `with` block, and once more at its end."""

    def __init__(self, *, interval_s: float = 1.0) -> None:
        """Set the interval between samples, s."""
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._points: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
        self._before: dict[tuple[str, str], tuple[float, float]] = {}
        """Counters of the last sample, by subject and name: the reference counter (total or time), and the value."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Stop, after a last sample."""
        self._stop.set()
        self._thread.join()

    def series(self) -> tuple[Series, ...]:
        """Return the series of samples so far."""
        with self._lock:
            return tuple(
                Series(name=name, subject=subject, unit=unit, points=tuple(points))
                for (subject, name, unit), points in sorted(self._points.items())
                if points
            )

    @abstractmethod
    def warnings(self) -> tuple[str, ...]:
        """Return warnings from the samples about the measurement's figures."""

    @abstractmethod
    def _sample(self) -> None:
        """Take one sample of everything."""

    def _run(self) -> None:
        is_last = False
        while True:
            with self._lock:
                self._sample()
            if is_last:
                return
            is_last = self._stop.wait(self._interval_s)

    def _add(self, subject: str, name: str, unit: str, value: float) -> None:
        points = self._points.setdefault((subject, name, unit), [])
        points.append((time.time(), value))
        if len(points) > MOST_POINTS:
            del points[1::2]

    def _add_part(self, name: str, part_s: float, total_s: float) -> None:
        """Add the growth of a counter of the machine as a part of the growth of the total."""
        before = self._before.get((MACHINE, name))
        self._before[MACHINE, name] = (total_s, part_s)
        if before is not None and total_s > before[0]:
            self._add(MACHINE, name, "ratio", min(1.0, max(0.0, part_s - before[1]) / (total_s - before[0])))

    def _time_warning(self, name: str, limit: float, subject: str) -> tuple[str, ...]:
        """Return a warning if others took more than `limit` of all processors' time."""
        with self._lock:
            seen = [value for _, value in self._points.get((MACHINE, name, "ratio"), [])]
        high = [value for value in seen if value > limit]
        if not high:
            return ()
        return (
            f"{subject} more than {limit:.0%} of the processors' time in {len(high)} of {len(seen)} samples, {max(high):.0%} at most: "
            f"each trial reports how much of that it lost.",
        )
