"""Processor time and memory of processes of this machine, and steal time and frequency of the machine, every second."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from ringroad_lab.record import Series

MACHINE = "machine"
# Above these, others take noticeable time, as part of all processors' time: guests of the same hypervisor, programs of the same machine.
STEAL_WARNING_RATIO = 0.02
OTHERS_WARNING_RATIO = 0.05
# Of a series, in a run of any length: an hour of seconds. Of more, every second point goes.
MOST_POINTS = 3600


class Sampler:
    """Samples on a thread of its own, from `with` to its end.

    Processes may be added while it runs, and end as they like: their series end then. Threads are found anew each time. Processor time is
    in processors: 1.0 is one processor, busy all the time.
    """

    def __init__(self, processes: Mapping[int, str] | None = None, *, interval_s: float = 1.0) -> None:
        """Name the processes to watch, by their number."""
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._watched: dict[int, tuple[str, psutil.Process]] = {}
        self._points: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
        self._before: dict[tuple[str, str], tuple[float, float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        for pid, name in (processes or {}).items():
            self.watch(pid, name)

    def watch(self, pid: int, name: str) -> None:
        """Watch one more process from now on; one that ended already is not watched."""
        try:
            process = psutil.Process(pid)
        except psutil.Error:
            return
        with self._lock:
            self._watched[pid] = (name, process)

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Stop, after a last sample."""
        self._stop.set()
        self._thread.join()

    def series(self) -> tuple[Series, ...]:
        """Return what was sampled so far."""
        with self._lock:
            return tuple(
                Series(name=name, subject=subject, unit=unit, points=tuple(points))
                for (subject, name, unit), points in sorted(self._points.items())
                if points
            )

    def warnings(self) -> tuple[str, ...]:
        """Return what the samples tell against the measurement: time that went to other guests of the hypervisor, or to other programs."""
        return (
            *self._warning("steal time", STEAL_WARNING_RATIO, "The hypervisor gave"),
            *self._warning("other programs", OTHERS_WARNING_RATIO, "Programs that have no part in the run took"),
        )

    def _warning(self, name: str, limit: float, who: str) -> tuple[str, ...]:
        with self._lock:
            seen = [value for _, value in self._points.get((MACHINE, name, "ratio"), [])]
        high = [value for value in seen if value > limit]
        if not high:
            return ()
        return (
            f"{who} more than {limit:.0%} of the processors' time in {len(high)} of {len(seen)} samples, {max(high):.0%} at most: "
            f"rates of that time are lower than the device's.",
        )

    def _run(self) -> None:
        is_last = False
        while True:
            with self._lock:
                self._sample()
            if is_last:
                return
            is_last = self._stop.wait(self._interval_s)

    def _sample(self) -> None:
        times = psutil.cpu_times()
        steal_s: float = getattr(times, "steal", 0.0)
        # Time in guests is counted as user time already.
        total_s: float = sum(getattr(times, field) for field in times._fields if not field.startswith("guest"))
        self._add_part("busy time", total_s - times.idle - getattr(times, "iowait", 0.0) - steal_s, total_s)
        self._add_part("steal time", steal_s, total_s)
        # In user mode only: what the kernel does in its own threads is mostly the work of whoever sends frames.
        own = psutil.Process().cpu_times()
        known_s: float = own.user + own.children_user
        is_whole = True
        for pid, (name, process) in list(self._watched.items()):
            try:
                known_s += self._sample_process(f"{name} ({pid})", process)
            except psutil.Error:
                del self._watched[pid]
                is_whole = False
        if is_whole:
            self._add_part("other programs", times.user + getattr(times, "nice", 0.0) - known_s, total_s)
        else:
            # With one process fewer, what the rest took before is another number.
            self._before.pop((MACHINE, "other programs"), None)
        self._add_frequency()

    def _sample_process(self, subject: str, process: psutil.Process) -> float:
        """Sample a process; return its time in user mode, s."""
        with process.oneshot():
            times = process.cpu_times()
            self._add_rate(subject, "user time", times.user)
            self._add_rate(subject, "system time", times.system)
            self._add(subject, "resident memory", "bytes", process.memory_info().rss)
        names = _thread_names(process.pid)
        for thread in process.threads():
            if thread.id != process.pid or len(names) > 1:
                whole = thread.user_time + thread.system_time
                self._add_rate(f"{subject}, thread {names.get(thread.id, '?')} ({thread.id})", "processor time", whole)
        user_s: float = times.user
        return user_s

    def _add_frequency(self) -> None:
        try:
            frequencies = psutil.cpu_freq(percpu=True)
        except (NotImplementedError, OSError):
            return
        for number, frequency in enumerate(frequencies or ()):
            self._add(f"processor {number}", "frequency", "Hz", frequency.current * 1e6)

    def _add(self, subject: str, name: str, unit: str, value: float) -> None:
        points = self._points.setdefault((subject, name, unit), [])
        points.append((time.time(), value))
        if len(points) > MOST_POINTS:
            del points[1::2]

    def _add_rate(self, subject: str, name: str, counter_s: float) -> None:
        """Add the growth of a counter of seconds since the last sample, per second."""
        now = time.monotonic()
        before = self._before.get((subject, name))
        self._before[subject, name] = (now, counter_s)
        if before is not None and now > before[0]:
            self._add(subject, name, "processors", max(0.0, counter_s - before[1]) / (now - before[0]))

    def _add_part(self, name: str, part_s: float, total_s: float) -> None:
        """Add the growth of a counter as part of the growth of all counters."""
        before = self._before.get((MACHINE, name))
        self._before[MACHINE, name] = (total_s, part_s)
        if before is not None and total_s > before[0]:
            self._add(MACHINE, name, "ratio", min(1.0, max(0.0, part_s - before[1]) / (total_s - before[0])))


def _thread_names(pid: int) -> dict[int, str]:
    """Return the names of a process's threads, which psutil does not tell."""
    names = {}
    for task in Path(f"/proc/{pid}/task").glob("*/comm"):
        try:
            names[int(task.parent.name)] = task.read_text().strip()
        except OSError:
            # It ended meanwhile.
            continue
    return names
