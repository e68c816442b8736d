"""Measures the time that other programs take of a run's processors while a trial offers its load.

It reads counters before and after a load, never during it, because reading takes processor time, too.

A PID namespace hides the programs outside of it. There, what a processor did besides the visible programs comes from the machine's
/proc/stat, which counts for all namespaces: all time, except idle and stolen time, interrupts, and the run's own time. It has the kernel's
threads with it, which are hidden, too.

The kernel counts no interrupt that wakes an idle processor: its time is neither idle nor any program's. Two programs that always wait for
each other leave a twentieth of their processors so. Therefore no more counts as hidden than the time in which the timer's tick found a
program.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from ringroad_lab.facts.other_programs import KTHREADD, line_of
from ringroad_lab.sandbox.private import OUTSIDE
from ringroad_lab.sandbox.processor_set import read_cpu_list
from ringroad_lab.trial import Disturbance

_NS = 1e9
# Number of programs that are reported by name; the sum includes all.
_PROGRAMS_NAMED = 3
# Indices of the fields of /proc/PID/stat after the name in parentheses. proc(5) counts from 1, and includes the PID and the name.
_PPID, _UTIME, _CSTIME, _PROCESSOR = 1, 11, 14, 36
# Fields of a line of /proc/stat. Interrupts mostly move the run's own frames.
_PROGRAMS = (1, 2, 3)
_IDLE, _INTERRUPTS, _STEAL = (4, 5), (6, 7), 8
HIDDEN = "programs of other namespaces"
"""Name of what a PID namespace hides."""
# Times of processes are whole ticks, so their differences are wrong by up to two.
_TICKS_OF_ERROR = 2


@dataclass(frozen=True)
class View:
    """Paths that show the machine's processes, and which of the processes are the run's."""

    proc: Path = Path("/proc")
    """A /proc of the outermost namespace that is visible."""
    lab: int = field(default_factory=os.getpid)
    """PID there of the ancestor of all processes of the run."""
    system: Path = Path("/sys")
    own: Path = Path("/proc")
    """The /proc that shows the run's parts by their PIDs in this namespace."""

    @classmethod
    def outside(cls) -> View:
        """Return the view from outside the sandbox of this process; without a sandbox, the view of its own namespace."""
        descriptor, _, lab = os.environ.get(OUTSIDE, "").partition(":")
        proc = Path(f"/proc/self/fd/{descriptor}")
        return cls(proc, int(lab)) if lab.isdecimal() and (proc / "self").is_symlink() else cls()


@dataclass(frozen=True)
class TimesByProcessor:
    """What processors did since the machine started, s, by processor."""

    programs_s: dict[int, float]
    """Of programs of all namespaces, and of the kernel's threads, by the timer's tick: a program that sleeps often can be missed."""
    idle_s: dict[int, float]
    interrupts_s: dict[int, float]
    steal_s: dict[int, float]


@dataclass(frozen=True)
class ProgramTimes:
    """Times of programs at one moment."""

    run_ns: dict[tuple[int, int], int]
    """Run time of each thread, by process and thread."""
    whole_s: dict[int, float]
    """Time of each process, including its ended children."""
    reaped_s: dict[int, float]
    """Time of those ended children alone."""


@dataclass(frozen=True)
class Look:
    """Counters at one moment; all of them only grow."""

    at_s: float
    processors: TimesByProcessor
    others: ProgramTimes
    """Of programs that have no part in the run."""
    lab: ProgramTimes
    """Of the run's programs that are no part of it: the laboratory itself. Read only where a namespace hides programs."""
    own_ns: dict[tuple[int, int], tuple[int, int]]
    """Run time and wait time of each thread of the run's parts, by process and thread."""
    own_s: dict[int, float]
    """Time of each of these processes, including ended threads."""
    throttles: int
    frequencies: tuple[int, ...]


class Witness:
    """Measures the time that other programs took of some processors between two moments."""

    def __init__(self, processors: Set[int], limit: float, parts: Callable[[], Sequence[int]] = tuple, view: View | None = None) -> None:
        """Set the processors and processes to watch.

        Args:
            processors: Processors of the generator, the device and the guests.
            limit: Limit for others' part of a processor's time.
            parts: Returns the PIDs in this namespace of the processes of generator, device and guests.
            view: Where other programs are visible.
        """
        self._processors = sorted(processors)
        self._limit = limit
        self._parts = parts
        self._view = view or View()
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")
        # The first namespace of a machine shows the kernel's threads, and no other does.
        thread = _stat(self._view.proc / f"{KTHREADD}/stat")
        self._hides_programs = thread is None or thread[0] != "kthreadd"

    def look(self) -> Look:
        """Read the counters before a load."""
        others, lab = self._programs()
        (own_ns, own_s), throttles, frequencies = self._own(), self._throttles(), self._frequencies()
        # Read last, right before the load begins.
        processors = self._processor_times()
        return Look(time.monotonic(), processors, others, lab, own_ns, own_s, throttles, frequencies)

    def since(self, before: Look) -> Disturbance:
        """Return the disturbance since a look, after a load."""
        at_s, processors, (own_ns, own_s) = time.monotonic(), self._processor_times(), self._own()
        others_now, lab = self._programs()
        after = Look(at_s, processors, others_now, lab, own_ns, own_s, self._throttles(), self._frequencies())
        stolen = {number: _grown(processors.steal_s, before.processors.steal_s, number) for number in self._processors}
        left = self._left(before, after, stolen)
        taken = self._taken(before.others, after.others)
        if self._hides_programs:
            of_lab = self._taken(before.lab, after.lab)
            for number, left_s in left.items():
                interrupts_s = self._interrupts(before, after, number, stolen[number])
                hidden_s = left_s - interrupts_s - sum(taken[number].values()) - sum(of_lab[number].values())
                taken[number][HIDDEN] = max(0.0, hidden_s)
        for number, left_s in left.items():
            # A thread that moved between processors took only a part of its time on the last one.
            whole = sum(taken[number].values())
            if whole > left_s:
                taken[number] = {name: taken_s * left_s / whole for name, taken_s in taken[number].items()}
        others = {number: sum(taken[number].values()) for number in self._processors}
        worst = max(self._processors, key=lambda number: stolen[number] + others[number], default=0)
        frequencies: tuple[int, ...] = (*before.frequencies, *after.frequencies)
        waits = [waited - before.own_ns.get(thread, (0, 0))[1] for thread, (_, waited) in own_ns.items()]
        return Disturbance(
            limit=self._limit,
            elapsed_s=at_s - before.at_s,
            processor=worst,
            steal_s=stolen.get(worst, 0.0),
            others_s=others.get(worst, 0.0),
            programs=_largest(taken.get(worst, {})),
            wait_s=sum(waits) / _NS if waits else None,
            throttles=max(0, after.throttles - before.throttles),
            frequency_ratio=min(frequencies) / max(frequencies) if any(frequencies) else None,
        )

    def _left(self, before: Look, after: Look, stolen: Mapping[int, float]) -> dict[int, float]:
        """Return the time of each processor that was neither idle nor stolen nor used by the run's parts, which are bound to processors."""
        left = {}
        for number in self._processors:
            gone_s = stolen[number] + _grown(after.processors.idle_s, before.processors.idle_s, number)
            left[number] = after.at_s - before.at_s - gone_s
        ended_s = {pid: whole_s - before.own_s.get(pid, 0.0) for pid, whole_s in after.own_s.items()}
        for (pid, tid), (ran, _) in after.own_ns.items():
            ran_s = (ran - before.own_ns.get((pid, tid), (0, 0))[0]) / _NS
            ended_s[pid] -= ran_s
            if (seen := _stat(self._view.own / f"{pid}/task/{tid}/stat")) and (processor := int(seen[1][_PROCESSOR])) in left:
                left[processor] -= ran_s
        for pid, threads_s in ended_s.items():
            # The threads of a load end with it, and with them what their processor was.
            if threads_s > _TICKS_OF_ERROR * self._tick_s:
                allowed = self._allowed(self._view.own, pid)
                for processor in allowed & left.keys():
                    left[processor] -= threads_s / len(allowed)
        return {number: max(0.0, left_s) for number, left_s in left.items()}

    def _interrupts(self, before: Look, after: Look, number: int, stolen_s: float) -> float:
        """Return the time of a processor's interrupts: what the kernel counts, or all that the tick found neither idle nor in a program."""
        then, now = before.processors, after.processors
        idle_s, programs_s = _grown(now.idle_s, then.idle_s, number), _grown(now.programs_s, then.programs_s, number)
        return max(_grown(now.interrupts_s, then.interrupts_s, number), after.at_s - before.at_s - stolen_s - idle_s - programs_s)

    def _taken(self, before: ProgramTimes, after: ProgramTimes) -> dict[int, dict[str, float]]:
        """Return programs' time on each processor, by program; a thread counts for the processor where it was seen last."""
        taken: dict[int, dict[str, float]] = {number: defaultdict(float) for number in self._processors}
        for (pid, tid), ns in after.run_ns.items():
            grown_ns = ns - before.run_ns.get((pid, tid), 0)
            if grown_ns > 0 and (seen := _stat(self._view.proc / f"{pid}/task/{tid}/stat")) is not None:
                name, fields = seen
                if (processor := int(fields[_PROCESSOR])) in taken:
                    taken[processor][name] += grown_ns / _NS
        # The account of the waiting parent has the whole time of a program that has ended, but not its processor: distribute the time
        # over the processors that the parent is allowed to use.
        grown_s = {pid: whole_s - before.reaped_s.get(pid, 0.0) for pid, whole_s in after.reaped_s.items()}
        known_s = sum(whole_s for pid, whole_s in before.whole_s.items() if pid not in after.reaped_s)
        part = max(0.0, 1 - known_s / sum(grown_s.values())) if any(grown_s.values()) else 0.0
        for pid, parents_s in grown_s.items():
            if parents_s > 0 and part:
                allowed = self._allowed(self._view.proc, pid)
                for processor in allowed & taken.keys():
                    taken[processor]["programs that ended"] += parents_s * part / len(allowed)
        return taken

    def _programs(self) -> tuple[ProgramTimes, ProgramTimes]:
        """Return the times of other programs; and those of the laboratory itself, if they are needed."""
        proc = self._view.proc
        parents: dict[int, int] = {}
        times: dict[int, list[int]] = {}
        for name in os.listdir(proc):
            if name.isdecimal() and (seen := _stat(proc / name / "stat")) is not None:
                fields = seen[1]
                parents[int(name)] = int(fields[_PPID])
                times[int(name)] = [int(ticks) for ticks in fields[_UTIME : _CSTIME + 1]]
        own = {self._view.lab, KTHREADD}
        strangers = [pid for pid in parents if not own.intersection(line_of(pid, parents))]
        lab: list[int] = []
        if self._hides_programs:
            parts = set(self._parts())
            lab = [pid for pid in parents.keys() - strangers if self._innermost(pid) not in parts]

        def times_of(pids: Sequence[int]) -> ProgramTimes:
            return ProgramTimes(
                {thread: ran for pid in pids for thread, (ran, _) in _schedstats(proc, pid).items()},
                {pid: sum(times[pid]) * self._tick_s for pid in pids},
                {pid: sum(times[pid][2:]) * self._tick_s for pid in pids},
            )

        return times_of(strangers), times_of(lab)

    def _innermost(self, pid: int) -> int:
        """Return a process's PID in its own namespace."""
        found = re.search(r"^NSpid:.*\s(\d+)$", _text(self._view.proc / f"{pid}/status"), re.MULTILINE)
        return int(found[1]) if found else pid

    def _own(self) -> tuple[dict[tuple[int, int], tuple[int, int]], dict[int, float]]:
        own_ns: dict[tuple[int, int], tuple[int, int]] = {}
        own_s: dict[int, float] = {}
        for pid in self._parts():
            if seen := _stat(self._view.own / f"{pid}/stat"):
                own_s[pid] = sum(int(ticks) for ticks in seen[1][_UTIME : _UTIME + 2]) * self._tick_s
                own_ns |= _schedstats(self._view.own, pid)
        return own_ns, own_s

    def _processor_times(self) -> TimesByProcessor:
        times = TimesByProcessor({}, {}, {}, {})
        for line in (self._view.proc / "stat").read_text().splitlines():
            fields = line.split()
            if fields and fields[0].startswith("cpu") and fields[0][3:].isdecimal() and len(fields) > _STEAL:
                number = int(fields[0][3:])
                times.programs_s[number] = sum(int(fields[index]) for index in _PROGRAMS) * self._tick_s
                times.idle_s[number] = sum(int(fields[index]) for index in _IDLE) * self._tick_s
                times.interrupts_s[number] = sum(int(fields[index]) for index in _INTERRUPTS) * self._tick_s
                times.steal_s[number] = int(fields[_STEAL]) * self._tick_s
        return times

    def _allowed(self, proc: Path, pid: int) -> frozenset[int]:
        """Return the processors that a process is allowed to use."""
        found = re.search(r"^Cpus_allowed_list:\s*(\S+)", _text(proc / f"{pid}/status"), re.MULTILINE)
        return read_cpu_list(found[1]) if found else frozenset(range(os.cpu_count() or 1))

    def _throttles(self) -> int:
        return sum(self._numbers("thermal_throttle/core_throttle_count"))

    def _frequencies(self) -> tuple[int, ...]:
        return self._numbers("cpufreq/scaling_cur_freq")

    def _numbers(self, name: str) -> tuple[int, ...]:
        files = [self._view.system / f"devices/system/cpu/cpu{number}/{name}" for number in self._processors]
        return tuple(int(text) for file in files if (text := _text(file).strip()).isdecimal())


def _largest(taken: Mapping[str, float]) -> dict[str, float]:
    """Return the programs that took the most time, the first ones first. None is named that took no time."""
    return dict(sorted(((name, taken_s) for name, taken_s in taken.items() if taken_s > 0), key=lambda item: -item[1])[:_PROGRAMS_NAMED])


def _grown(after: Mapping[int, float], before: Mapping[int, float], number: int) -> float:
    return max(0.0, after.get(number, 0.0) - before.get(number, 0.0))


def _schedstats(proc: Path, pid: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the time that each thread of a process ran, and the time that it was runnable but waited, ns."""
    found = {}
    try:
        threads = os.listdir(proc / f"{pid}/task")
    except OSError:
        return {}
    for thread in threads:
        if fields := _text(proc / f"{pid}/task/{thread}/schedstat").split():
            found[pid, int(thread)] = int(fields[0]), int(fields[1])
    return found


def _stat(file: Path) -> tuple[str, list[str]] | None:
    """Return the name and the fields after it of a process's or thread's `stat`; None if it has ended."""
    text = _text(file)
    # A name can contain any character, also parentheses.
    head, _, rest = text.rpartition(")")
    fields = rest.split()
    return (head.partition("(")[2], fields) if len(fields) > _PROCESSOR else None


def _text(file: Path) -> str:
    """Return the contents of a file; empty if it no longer exists."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
