"""Processor time of other programs: real processes, and fabricated ones for cases that a busy machine would hide."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator

import psutil
import pytest

from ringroad_lab.deadline import wait_until
from ringroad_lab.facts.other_programs import KTHREADD, OtherPrograms

Times = namedtuple("Times", "user system children_user children_system")


class Fabricated:
    """A fabricated process whose processor time grows by `step_s` at each query."""

    def __init__(self, pid: int, ppid: int, step_s: float) -> None:
        self.pid = pid
        self._ppid = ppid
        self._step_s = step_s
        self._taken_s = 0.0

    @property
    def info(self) -> dict[str, object]:
        self._taken_s += self._step_s
        return {"ppid": self._ppid, "cpu_times": Times(self._taken_s / 2, self._taken_s / 4, self._taken_s / 4, 0.0)}


def values(others: OtherPrograms) -> list[float]:
    return [value for series in others.series() for _, value in series.points]


@pytest.mark.parametrize(
    ("line", "is_other"),
    [([(500, 1)], True), ([(501, 500), (500, 1)], True), ([(500, os.getpid())], False), ([(501, 500), (500, os.getpid())], False)],
    ids=["other", "child of other", "own", "child of own"],
)
def test_only_programs_outside_the_run_count(monkeypatch: pytest.MonkeyPatch, line: list[tuple[int, int]], is_other: bool) -> None:
    processes = [Fabricated(1, 0, 0.0), Fabricated(os.getpid(), 1, 50.0), Fabricated(KTHREADD, 0, 50.0), Fabricated(30, KTHREADD, 50.0)]
    processes += [Fabricated(pid, ppid, 50.0 * (number == 0)) for number, (pid, ppid) in enumerate(line)]
    monkeypatch.setattr(psutil, "process_iter", lambda _: processes)
    with OtherPrograms(interval_s=0.001) as others:
        assert wait_until(lambda: len(values(others)) > 2, 20)
    assert all(value > 0 for value in values(others)) is is_other
    assert any(values(others)) is is_other
    assert bool(others.warnings()) is is_other
    for warning in others.warnings():
        assert warning.startswith("Programs that have no part in the run took more than 5% of the processors' time in ")


@pytest.fixture
def foreign_pid() -> Iterator[int]:
    """A busy process that does not belong to the test: its parent has ended."""
    started = subprocess.run(
        ["sh", "-c", f"{sys.executable} -c 'while True: pass' >/dev/null & echo $!"], stdout=subprocess.PIPE, text=True, check=True
    )
    pid = int(started.stdout)
    yield pid
    os.kill(pid, signal.SIGKILL)


def test_a_real_foreign_program_is_seen(foreign_pid: int) -> None:
    with OtherPrograms(interval_s=0.05) as others:
        assert wait_until(lambda: sum(values(others)) > 0, 20)
    assert psutil.pid_exists(foreign_pid)
