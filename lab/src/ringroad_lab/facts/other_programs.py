"""Processor time of programs that have no part in a run. Their load makes the figures worse.

For the outer process of a run: all processes are visible only outside the run's namespaces. The kernel counts the time of all processors
in ticks, which does not agree with the time of processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import psutil

from ringroad_lab.facts.periodic import PeriodicSampler

OTHERS_WARNING_RATIO = 0.05
# Parent of the kernel's threads, which mostly work for the senders of frames.
KTHREADD = 2


class OtherPrograms(PeriodicSampler):
    """Samples the processor time of all processes except this one, its descendants, and the kernel's threads."""

    def warnings(self) -> tuple[str, ...]:
        """Return a warning if other programs took noticeable time."""
        return self._time_warning("other programs", OTHERS_WARNING_RATIO, "Programs that have no part in the run took")

    def _sample(self) -> None:
        # The time of a process that ended without being waited for is lost: the sum may even fall.
        self._add_part("other programs", _taken_s(), time.monotonic() * (os.cpu_count() or 1))


def _taken_s() -> float:
    """Return the processor time of other programs and of their ended children, s."""
    parents: dict[int, int] = {}
    times: dict[int, float] = {}
    for process in psutil.process_iter(["ppid", "cpu_times"]):
        used = process.info["cpu_times"]
        if used is not None:
            parents[process.pid] = process.info["ppid"]
            times[process.pid] = used.user + used.system + used.children_user + used.children_system
    own = {os.getpid(), KTHREADD}
    return sum(taken_s for pid, taken_s in times.items() if not own.intersection(line_of(pid, parents)))


def line_of(pid: int, parents: Mapping[int, int]) -> set[int]:
    """Return a process and its ancestors."""
    line = set()
    while pid and pid not in line:
        line.add(pid)
        pid = parents.get(pid, 0)
    return line
