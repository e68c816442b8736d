"""Processor time and memory of processes of this machine, and steal time and frequency of the machine, every second."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from ringroad_lab.facts.periodic import PeriodicSampler

# Fraction of all processors' time above which other guests of the hypervisor take noticeable time.
STEAL_WARNING_RATIO = 0.02


class Sampler(PeriodicSampler):
    """Samples a machine and some of its processes.

    Processes can be added at any time, and can end at any time, which ends their series. Each sample finds the threads anew. The unit of
    processor time is processors: 1.0 is one processor, busy all the time.
    """

    def __init__(self, processes: Mapping[int, str] | None = None, *, interval_s: float = 1.0) -> None:
        """Set the processes to watch: names by PID."""
        super().__init__(interval_s=interval_s)
        self._watched: dict[int, tuple[str, psutil.Process]] = {}
        for pid, name in (processes or {}).items():
            self.watch(pid, name)

    def watch(self, pid: int, name: str) -> None:
        """Watch one more process from now on; ignore a process that has already ended."""
        try:
            process = psutil.Process(pid)
        except psutil.Error:
            return
        with self._lock:
            self._watched[pid] = (name, process)

    def warnings(self) -> tuple[str, ...]:
        """Return a warning if the hypervisor gave noticeable time to other guests."""
        return self._time_warning("steal time", STEAL_WARNING_RATIO, "The hypervisor gave")

    def _sample(self) -> None:
        times = psutil.cpu_times()
        steal_s: float = getattr(times, "steal", 0.0)
        # Time in guests is counted as user time already.
        total_s: float = sum(getattr(times, field) for field in times._fields if not field.startswith("guest"))
        self._add_part("busy time", total_s - times.idle - getattr(times, "iowait", 0.0) - steal_s, total_s)
        self._add_part("steal time", steal_s, total_s)
        self._add_frequency()
        for pid, (name, process) in list(self._watched.items()):
            try:
                self._sample_process(f"{name} ({pid})", process)
                self._watch_children(name, pid)
            except (psutil.Error, OSError):
                del self._watched[pid]

    def _watch_children(self, name: str, pid: int) -> None:
        """Watch the children of a process from the next sample on."""
        for file in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, file.read_text().split()):
                if child not in self._watched:
                    self.watch(child, name if name.startswith("child of ") else f"child of {name}")

    def _sample_process(self, subject: str, process: psutil.Process) -> None:
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

    def _add_frequency(self) -> None:
        try:
            frequencies = psutil.cpu_freq(percpu=True)
        except (NotImplementedError, OSError):
            return
        for number, frequency in enumerate(frequencies or ()):
            self._add(f"processor {number}", "frequency", "Hz", frequency.current * 1e6)

    def _add_rate(self, subject: str, name: str, counter_s: float) -> None:
        """Add the growth of a counter of seconds since the last sample, per second."""
        now = time.monotonic()
        before = self._before.get((subject, name))
        self._before[subject, name] = (now, counter_s)
        if before is not None and now > before[0]:
            self._add(subject, name, "processors", max(0.0, counter_s - before[1]) / (now - before[0]))


def _thread_names(pid: int) -> dict[int, str]:
    """Return the names of a process's threads, which psutil does not provide."""
    names = {}
    for task in Path(f"/proc/{pid}/task").glob("*/comm"):
        try:
            names[int(task.parent.name)] = task.read_text().strip()
        except OSError:
            # The thread has ended.
            continue
    return names
