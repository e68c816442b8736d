"""A device's cost to its machine: processor time, cycles and memory of its processes, and time of the kernel, over an interval."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ringroad_lab.errors import HostError
from ringroad_lab.host.interface import Host, Process
from ringroad_lab.host.sysfs import read_files
from ringroad_lab.trial import Figure, Frozen, Seconds

T = TypeVar("T")

PROCESSORS_RESOLUTION = 0.01
"""A hundredth of a processor: a sleeping device takes far less, and a doubling of that is still irrelevant."""

_NS = 1e9
# Indices of fields in the first line of /proc/stat, after its name: system, irq, softirq (proc(5)).
_KERNEL_FIELDS = (2, 5, 6)
_PERF_LIMIT_S = 10.0


class Cost(Frozen):
    """Resources that a device used in an interval; None: unknown."""

    elapsed_s: Seconds
    run_s: Figure | None = None
    """Processor time of all of its threads; None if the kernel forwards."""
    wait_s: Figure | None = None
    """Time in which its threads were runnable, but others had their processors."""
    kernel_s: Figure | None = None
    """Time in the kernel, of all processors of its machine: system calls of all processes, interrupts and soft interrupts."""
    busy_s: Figure | None = None
    """Time that its forwarding threads spent processing frames, as reported by the device: polling without frames is not busy."""
    cycles: Figure | None = None
    """Processor cycles of all of its threads."""
    memory_bytes: Figure | None = None
    """Resident memory of its processes at the end."""

    @property
    def processors(self) -> float | None:
        """Processor time per second."""
        return None if self.run_s is None or not self.elapsed_s else self.run_s / self.elapsed_s

    @property
    def wait_ratio(self) -> float | None:
        """Fraction of the time in which its threads were runnable that others had their processors."""
        if self.run_s is None or self.wait_s is None:
            return None
        wanted_s = self.run_s + self.wait_s
        return self.wait_s / wanted_s if wanted_s else 0.0


class CostMeter(ABC):
    """Measures what a device costs."""

    @abstractmethod
    def over(self, work: Callable[[], T]) -> tuple[T, Cost]:
        """Run `work`, and return its result and the resources that the device used meanwhile.

        Raises:
            HostError: the cost cannot be read on the device's machine.
        """

    @abstractmethod
    def idle(self, duration_s: float) -> Cost:
        """Offer nothing for `duration_s`, and return the resources that the device used.

        Raises:
            HostError: the cost cannot be read on the device's machine.
        """


class ProcessCosts(CostMeter):
    """Measures the cost of processes on a host. The time of threads that end within an interval is lost."""

    def __init__(
        self,
        host: Host,
        processes: Sequence[Process],
        *,
        counts_cycles: bool = False,
        busy_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        """Set a device's processes, none if the kernel forwards. `perf` counts cycles if it is installed and the machine supports that.

        `busy_s` returns the device's own count of its time processing frames, since an arbitrary start.
        """
        self._host = host
        self._processes = tuple(processes)
        self._busy_s = busy_s
        self._counts_cycles = counts_cycles and bool(processes) and host.find_program("perf") is not None

    def over(self, work: Callable[[], T]) -> tuple[T, Cost]:
        """See [`CostMeter.over`]."""
        perf = self._start_perf() if self._counts_cycles else None
        try:
            busy_before_s = self._busy_s()
            before, began_s = self._read(), time.monotonic()
            result = work()
            elapsed_s = time.monotonic() - began_s
            after = self._read()
            busy_after_s = self._busy_s()
            cycles = self._cycles(perf) if perf is not None else None
        finally:
            if perf is not None:
                perf.stop()
        busy_s = None if busy_before_s is None or busy_after_s is None else max(0.0, busy_after_s - busy_before_s)
        return result, _cost(before, after, elapsed_s, cycles).model_copy(update={"busy_s": busy_s})

    def idle(self, duration_s: float) -> Cost:
        """See [`CostMeter.idle`]."""
        return self.over(lambda: time.sleep(duration_s))[1]

    def _read(self) -> dict[str, str]:
        files = read_files(self._host, ("/proc/stat", *_files_of(process.pid for process in self._processes)))
        known = {process.pid for process in self._processes}
        # The cost of a process includes its children.
        while children := {int(pid) for path, text in files.items() if path.endswith("/children") for pid in text.split()} - known:
            known |= children
            files |= read_files(self._host, _files_of(children))
        for process in self._processes:
            if not any(path.startswith(f"/proc/{process.pid}/task/") for path in files):
                raise HostError(f"/proc/{process.pid}/task of {process.name} has no processor time (schedstat)")
        return files

    def _start_perf(self) -> Process:
        # A delay makes perf report when it starts to count; 1 ms is the least delay.
        pids = ",".join(str(process.pid) for process in self._processes)
        perf = self._host.start("perf", ["perf", "stat", "--field-separator", ",", "--delay", "1", "--event", "cycles", "--pid", pids])
        perf.wait_output("Events enabled", _PERF_LIMIT_S)
        return perf

    def _cycles(self, perf: Process) -> float | None:
        # SIGALRM ends perf like SIGINT, which may be ignored here.
        if perf.is_running():
            self._host.run(["sh", "-c", f"kill -ALRM {perf.pid}"], check=False)
        cycles = read_cycles(perf.output()) if perf.wait_output(",cycles", _PERF_LIMIT_S) else None
        # A machine without a counter has none the next time either.
        self._counts_cycles = cycles is not None
        return cycles


def _files_of(pids: Iterable[int]) -> list[str]:
    names = ("task/[0-9]*/schedstat", "task/[0-9]*/children", "status")
    return [f"/proc/{pid}/{name}" for pid in pids for name in names]


def read_cycles(output: str) -> float | None:
    """Return the cycles that `perf stat --field-separator ,` counted; None where the machine has no such counter."""
    for line in output.splitlines():
        count, _, rest = line.partition(",")
        # A modifier may follow: cycles:u if counting the kernel's cycles is not allowed.
        if rest.split(",")[1:2] and rest.split(",")[1].startswith("cycles") and count.isdecimal():
            return float(count)
    return None


def _cost(before: dict[str, str], after: dict[str, str], elapsed_s: float, cycles: float | None) -> Cost:
    threads = [path for path in after if path.endswith("/schedstat")]
    grown = [0.0, 0.0]
    for path in threads:
        for index in (0, 1):
            grown[index] += _number(after[path], index) - (_number(before[path], index) if path in before else 0)
    # Huge pages are not in the resident set (proc(5)).
    resident = ("VmRSS:", "HugetlbPages:")
    memory_kib = [int(line.split()[1]) for text in after.values() for line in text.splitlines() if line.startswith(resident)]
    ticks = [sum(_number(files.get("/proc/stat", ""), 1 + field) for field in _KERNEL_FIELDS) for files in (before, after)]
    return Cost(
        elapsed_s=elapsed_s,
        run_s=grown[0] / _NS if threads else None,
        wait_s=grown[1] / _NS if threads else None,
        kernel_s=(ticks[1] - ticks[0]) / os.sysconf("SC_CLK_TCK") if "/proc/stat" in after else None,
        cycles=cycles,
        memory_bytes=sum(memory_kib) * 1024 if memory_kib else None,
    )


def _number(text: str, index: int) -> int:
    fields = text.splitlines()[0].split() if text else []
    return int(fields[index]) if index < len(fields) else 0
