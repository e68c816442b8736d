"""What others take of a run's processors while a trial offers its load.

Read before and after a load, never meanwhile: reading takes time of a processor, too.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from ringroad_lab.facts.other_programs import KTHREADD, line_of
from ringroad_lab.sandbox.private import OUTSIDE
from ringroad_lab.trial import Disturbance

_NS = 1e9
# Those that are told by name; the rest is in the sum.
_PROGRAMS_TOLD = 3
# Fields of /proc/PID/stat behind the name in parentheses (proc(5)): what is counted from 1 there, and with the number and the name.
_PPID, _CUTIME, _CSTIME, _PROCESSOR = 1, 13, 14, 36
_STEAL = 8


@dataclass(frozen=True)
class View:
    """Where the machine's processes are seen, and which of them are the run's."""

    proc: Path = Path("/proc")
    """A process file system of the outermost namespace that there is."""
    lab: int = field(default_factory=os.getpid)
    """The process, by its number there, that all of the run come of."""
    system: Path = Path("/sys")

    @classmethod
    def outside(cls) -> View:
        """Return the view out of the sandbox that this process is in; that of its own namespace where it is in none."""
        descriptor, _, lab = os.environ.get(OUTSIDE, "").partition(":")
        proc = Path(f"/proc/self/fd/{descriptor}")
        return cls(proc, int(lab)) if lab.isdecimal() and (proc / "self").is_symlink() else cls()


@dataclass(frozen=True)
class Look:
    """What is counted at a moment; all of it only grows."""

    at_s: float
    steal_s: dict[int, float]
    """By processor."""
    run_ns: dict[tuple[int, int], int]
    """Of each thread of a stranger, by process and thread."""
    parents: dict[int, int]
    reaped_s: dict[int, float]
    """Of the children of strangers that ended and were waited for, by parent."""
    wait_ns: dict[tuple[int, int], int]
    """Of each thread of the run's parts, by process and thread."""
    throttles: int
    frequencies: tuple[int, ...]


class Witness:
    """Tells what others took of some processors between two moments."""

    def __init__(self, processors: Set[int], limit: float, parts: Callable[[], Sequence[int]] = tuple, view: View | None = None) -> None:
        """Take what is watched.

        Args:
            processors: Those that the generator, the device and the guests use.
            limit: What others may take of one, as a part of its time.
            parts: Tells the processes of these three, by their numbers here.
            view: Where strangers are seen.
        """
        self._processors = sorted(processors)
        self._limit = limit
        self._parts = parts
        self._view = view or View()
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")

    def look(self) -> Look:
        """Count, before a load."""
        run_ns, parents, reaped_s = self._strangers()
        wait_ns, throttles, frequencies = self._waits(), self._throttles(), self._frequencies()
        # Last, as the load begins.
        steal_s = self._steal()
        return Look(time.monotonic(), steal_s, run_ns, parents, reaped_s, wait_ns, throttles, frequencies)

    def since(self, before: Look) -> Disturbance:
        """Return what others took since a look, after a load."""
        at_s, steal_s = time.monotonic(), self._steal()
        elapsed_s = at_s - before.at_s
        run_ns, parents, reaped_s = self._strangers()
        taken = self._taken(before, Look(at_s, steal_s, run_ns, parents, reaped_s, {}, 0, ()))
        stolen = {number: max(0.0, steal_s.get(number, 0.0) - before.steal_s.get(number, 0.0)) for number in self._processors}
        # What one looked at a little later than the other may add up to more than there was.
        others = {number: min(sum(taken[number].values()), max(0.0, elapsed_s - stolen[number])) for number in self._processors}
        worst = max(self._processors, key=lambda number: stolen[number] + others[number], default=0)
        waits = self._waits()
        frequencies: tuple[int, ...] = (*before.frequencies, *self._frequencies())
        return Disturbance(
            limit=self._limit,
            elapsed_s=elapsed_s,
            processor=worst,
            steal_s=stolen.get(worst, 0.0),
            others_s=others.get(worst, 0.0),
            programs=dict(sorted(taken.get(worst, {}).items(), key=lambda told: -told[1])[:_PROGRAMS_TOLD]),
            wait_s=sum(ns - before.wait_ns.get(thread, 0) for thread, ns in waits.items()) / _NS if waits else None,
            throttles=max(0, self._throttles() - before.throttles),
            frequency_ratio=min(frequencies) / max(frequencies) if any(frequencies) else None,
        )

    def _taken(self, before: Look, after: Look) -> dict[int, dict[str, float]]:
        """Return what strangers took of each processor, by name of the program: of that where a thread was seen last."""
        taken: dict[int, dict[str, float]] = {number: defaultdict(float) for number in self._processors}
        for (pid, tid), ns in after.run_ns.items():
            grown_ns = ns - before.run_ns.get((pid, tid), 0)
            if grown_ns > 0 and (seen := _stat(self._view.proc / f"{pid}/task/{tid}/stat")) is not None:
                name, fields = seen
                if (processor := int(fields[_PROCESSOR])) in taken:
                    taken[processor][name] += grown_ns / _NS
        # A program that began and ended meanwhile is in its parent's account alone, which does not tell where it ran.
        ended_s: defaultdict[int, float] = defaultdict(float)
        for (pid, _), ns in before.run_ns.items():
            if pid not in after.parents:
                ended_s[before.parents.get(pid, 0)] += ns / _NS
        for pid, whole_s in after.reaped_s.items():
            grown_s = whole_s - before.reaped_s.get(pid, whole_s) - ended_s[pid]
            if grown_s > 0 and (seen := _stat(self._view.proc / f"{pid}/stat")) is not None:
                for processor in taken:
                    taken[processor][f"children of {seen[0]}"] += grown_s / (os.cpu_count() or 1)
        return taken

    def _strangers(self) -> tuple[dict[tuple[int, int], int], dict[int, int], dict[int, float]]:
        """Return the time of each thread of a stranger, all processes' parents, and the time of strangers' children that ended."""
        proc = self._view.proc
        parents: dict[int, int] = {}
        reaped_s: dict[int, float] = {}
        for name in os.listdir(proc):
            if name.isdecimal() and (seen := _stat(proc / name / "stat")) is not None:
                fields = seen[1]
                parents[int(name)] = int(fields[_PPID])
                reaped_s[int(name)] = (int(fields[_CUTIME]) + int(fields[_CSTIME])) * self._tick_s
        own = {self._view.lab, KTHREADD}
        strangers = [pid for pid in parents if not own.intersection(line_of(pid, parents))]
        run_ns = {thread: ns for pid in strangers for thread, ns in _schedstats(proc, pid, 0).items()}
        return run_ns, parents, {pid: reaped_s[pid] for pid in strangers}

    def _waits(self) -> dict[tuple[int, int], int]:
        return {thread: ns for pid in self._parts() for thread, ns in _schedstats(Path("/proc"), pid, 1).items()}

    def _steal(self) -> dict[int, float]:
        found = {}
        for line in (self._view.proc / "stat").read_text().splitlines():
            fields = line.split()
            if fields and fields[0].startswith("cpu") and fields[0][3:].isdecimal() and len(fields) > _STEAL:
                found[int(fields[0][3:])] = int(fields[_STEAL]) * self._tick_s
        return found

    def _throttles(self) -> int:
        return sum(self._numbers("thermal_throttle/core_throttle_count"))

    def _frequencies(self) -> tuple[int, ...]:
        return self._numbers("cpufreq/scaling_cur_freq")

    def _numbers(self, name: str) -> tuple[int, ...]:
        files = [self._view.system / f"devices/system/cpu/cpu{number}/{name}" for number in self._processors]
        return tuple(int(text) for file in files if (text := _text(file).strip()).isdecimal())


def _schedstats(proc: Path, pid: int, index: int) -> dict[tuple[int, int], int]:
    """Return a figure of the scheduler's, ns, of each thread of a process: 0 is the time that it ran, 1 that it waited."""
    found = {}
    try:
        threads = os.listdir(proc / f"{pid}/task")
    except OSError:
        return {}
    for thread in threads:
        if fields := _text(proc / f"{pid}/task/{thread}/schedstat").split():
            found[pid, int(thread)] = int(fields[index])
    return found


def _stat(file: Path) -> tuple[str, list[str]] | None:
    """Return the name and what follows it of a process's or thread's `stat`; None where it has ended."""
    text = _text(file)
    # A name may hold anything, parentheses too.
    head, _, rest = text.rpartition(")")
    fields = rest.split()
    return (head.partition("(")[2], fields) if len(fields) > _PROCESSOR else None


def _text(file: Path) -> str:
    """Return what a file holds; nothing where it is not there any more."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
