"""Processor time of programs that have no part in a run: their load makes the figures worse.

For the outer process of a run: only there, outside of the run's namespaces, can all processes be seen. The kernel's own figures of all
processors are counted in ticks, and say something else than those of processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import psutil

from ringroad_lab.facts.periodic import PeriodicSampler

OTHERS_WARNING_RATIO = 0.05
# Its children are the threads of the kernel, whose work is mostly that of whoever sends frames.
KTHREADD = 2


class OtherPrograms(PeriodicSampler):
    """Samples the processor time of all processes that are neither this one, nor come of it, nor are the kernel's."""

    def warnings(self) -> tuple[str, ...]:
        """Return whether they took noticeable time."""
        return self._time_warning("other programs", OTHERS_WARNING_RATIO, "Programs that have no part in the run took")

    def _sample(self) -> None:
        # One that ended and was never waited for takes its time with it: then the sum may even fall.
        self._add_part("other programs", _taken_s(), time.monotonic() * (os.cpu_count() or 1))


def _taken_s() -> float:
    """Processor time of the others and of those children of theirs that ended, s."""
    parents: dict[int, int] = {}
    times: dict[int, float] = {}
    for process in psutil.process_iter(["ppid", "cpu_times"]):
        told = process.info["cpu_times"]
        if told is not None:
            parents[process.pid] = process.info["ppid"]
            times[process.pid] = told.user + told.system + told.children_user + told.children_system
    own = {os.getpid(), KTHREADD}
    return sum(taken_s for pid, taken_s in times.items() if not own.intersection(line_of(pid, parents)))


def line_of(pid: int, parents: Mapping[int, int]) -> set[int]:
    """Return a process and those that it comes of."""
    line = set()
    while pid and pid not in line:
        line.add(pid)
        pid = parents.get(pid, 0)
    return line
