"""Disturbance of the run's processors during a trial: real programs, and files in place of counters that this machine does not have."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ringroad_lab.deadline import wait_until
from ringroad_lab.facts.witness import HIDDEN, View, Witness
from ringroad_lab.trial import Disturbance

LAB = 100


class Files:
    """A machine of plain files in place of the kernel's: two processors, and a simulated clock."""

    def __init__(self, folder: Path) -> None:
        self.view = View(folder / "proc", LAB, folder / "sys", folder / "proc")
        self.steal = {0: 0, 1: 0}
        self.idle = {0: 0, 1: 0}
        self.interrupts = {0: 0, 1: 0}
        self.programs = {0: 0, 1: 0}
        self.process(1, 0)
        self.process(2, 0, name="kthreadd")
        self.process(LAB, 1)
        self._write_steal()

    def process(self, pid: int, parent: int, *, run_ns: int = 0, processor: int = 1, reaped_ticks: int = 0, name: str = "program") -> None:
        fields = ["S", str(parent), *["0"] * 35]
        # Of the process, in ticks; `reaped_ticks` of its ended children.
        fields[11], fields[13], fields[36] = str(run_ns // 10**7), str(reaped_ticks), str(processor)
        text = f"{pid} ({name}) {' '.join(fields)}\n"
        thread = self.view.proc / f"{pid}/task/{pid}"
        thread.mkdir(parents=True, exist_ok=True)
        for folder in (self.view.proc / str(pid), thread):
            (folder / "stat").write_text(text)
        (thread / "schedstat").write_text(f"{run_ns} 0 0\n")

    def take(self, processor: int, ticks: int) -> None:
        self.steal[processor] += ticks
        self._write_steal()

    def hide_what_is_outside(self) -> None:
        """Show no thread of the kernel, and nothing outside of the namespace."""
        shutil.rmtree(self.view.proc / "2")

    def count(self, processor: int, *, programs: int = 0, idle: int = 0, interrupts: int = 0) -> None:
        """Let the kernel count some ticks of a processor."""
        self.programs[processor] += programs
        self.idle[processor] += idle
        self.interrupts[processor] += interrupts
        self._write_steal()

    def sysfs(self, name: str, values: dict[int, int]) -> None:
        for number, value in values.items():
            file = self.view.system / f"devices/system/cpu/cpu{number}" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{value}\n")

    def _write_steal(self) -> None:
        lines = [
            "cpu 0 0 0 0 0 0 0 0 0 0",
            *(
                f"cpu{number} 9 9 {9 + self.programs[number]} {9 + self.idle[number]} 9 9 {9 + self.interrupts[number]} {ticks} 0 0"
                for number, ticks in self.steal.items()
            ),
        ]
        (self.view.proc / "stat").write_text("\n".join(lines) + "\n")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """The time between two looks is a second."""
    now = iter(range(100))
    monkeypatch.setattr("ringroad_lab.facts.witness.time.monotonic", lambda: float(next(now)))
    return Files(tmp_path)


def test_the_processor_that_lost_the_most_is_reported(files: Files) -> None:
    files.process(500, 1, run_ns=7, name="cc1 (plus)")
    witness = Witness({0, 1}, 0.05, view=files.view)
    before = witness.look()
    files.process(500, 1, run_ns=300_000_007, processor=1, name="cc1 (plus)")
    files.process(501, 500, run_ns=100_000_000, processor=0, name="sh")
    files.take(1, 10)
    seen = witness.since(before)
    assert (seen.elapsed_s, seen.processor) == (1.0, 1)
    assert seen.steal_s == pytest.approx(0.1)
    assert seen.programs == {"cc1 (plus)": pytest.approx(0.3)}
    assert seen.ratio == pytest.approx(0.4)
    assert seen.is_above_limit
    assert seen.describe() == "40% of processor 1 (steal time 10%, cc1 (plus) 30%)"


def test_the_run_the_kernel_and_other_processors_are_not_a_disturbance(files: Files) -> None:
    witness = Witness({1}, 0.05, view=files.view)
    before = witness.look()
    # Time of the lab, of its child, of the kernel, and of another program on another processor.
    files.process(LAB, 1, run_ns=10**9)
    files.process(600, LAB, run_ns=10**9)
    files.process(30, 2, run_ns=10**9)
    files.process(500, 1, run_ns=10**9, processor=0)
    files.take(0, 100)
    seen = witness.since(before)
    assert (seen.ratio, seen.programs, seen.is_above_limit) == (0.0, {}, False)


def test_programs_that_began_and_ended_during_the_load_count_by_their_parent(files: Files) -> None:
    files.process(500, 1, name="make", reaped_ticks=1000)
    # This program has ended children itself.
    files.process(501, 500, run_ns=2 * 10**9, reaped_ticks=300, name="cc1")
    (files.view.proc / "500/status").write_text("Name:\tmake\nCpus_allowed_list:\t1-4\n")
    witness = Witness({0, 1}, 0.05, view=files.view)
    before = witness.look()
    # The child that ended had used 5 s before the load; another child used a fifth of a second.
    files.process(500, 1, name="make", reaped_ticks=1000 + 520)
    for file in (files.view.proc / "501").rglob("*stat"):
        file.unlink()
    seen = witness.since(before)
    assert seen.processor == 1
    assert seen.programs == {"programs that ended": pytest.approx(0.2 / 4)}


def test_heat_and_frequency_are_reported_where_the_machine_shows_them(files: Files) -> None:
    files.sysfs("thermal_throttle/core_throttle_count", {0: 3, 1: 4})
    files.sysfs("cpufreq/scaling_cur_freq", {0: 3_000_000, 1: 3_000_000})
    witness = Witness({0, 1}, 0.05, view=files.view)
    before = witness.look()
    files.sysfs("thermal_throttle/core_throttle_count", {1: 6})
    files.sysfs("cpufreq/scaling_cur_freq", {0: 2_400_000})
    seen = witness.since(before)
    assert (seen.throttles, seen.is_above_limit) == (2, True)
    assert seen.frequency_ratio == pytest.approx(0.8)
    assert seen.describe() == "0% of processor 0, 2 times too hot"


def test_time_of_the_runs_own_parts_is_not_counted_for_others(files: Files) -> None:
    files.process(600, LAB, processor=1)
    witness = Witness({0, 1}, 0.05, lambda: (600,), files.view)
    before = witness.look()
    # Another program was last seen on the processor where a part of the run had nine tenths of the time.
    files.process(600, LAB, run_ns=900_000_000, processor=1)
    files.process(500, 1, run_ns=600_000_000, processor=1, name="cc1")
    seen = witness.since(before)
    assert seen.others_s == pytest.approx(0.1)
    assert seen.programs == {"cc1": pytest.approx(0.1)}


def test_no_program_is_named_that_took_no_time(files: Files) -> None:
    files.process(600, LAB, processor=1)
    witness = Witness({0, 1}, 0.05, lambda: (600,), files.view)
    before = witness.look()
    files.process(600, LAB, run_ns=1_000_000_000, processor=1)
    files.process(500, 1, run_ns=600_000_000, processor=1, name="cc1")
    seen = witness.since(before)
    assert (seen.others_s, seen.programs) == (0, {})


def test_what_a_namespace_hides_is_what_nothing_visible_did(files: Files) -> None:
    files.hide_what_is_outside()
    files.process(600, LAB, processor=1)
    files.process(601, LAB, processor=1, name="python")
    files.process(500, 1, processor=1, name="cc1")
    witness = Witness({0, 1}, 0.05, lambda: (600,), files.view)
    before = witness.look()
    files.process(600, LAB, run_ns=300_000_000, processor=1)
    files.process(601, LAB, run_ns=50_000_000, processor=1, name="python")
    files.process(500, 1, run_ns=100_000_000, processor=1, name="cc1")
    files.take(1, 10)
    files.count(1, programs=65, idle=20, interrupts=5)
    files.count(0, idle=100)
    seen = witness.since(before)
    assert seen.processor == 1
    assert seen.steal_s == pytest.approx(0.1)
    assert seen.programs == {HIDDEN: pytest.approx(0.2), "cc1": pytest.approx(0.1)}


def test_a_quiet_machine_has_nothing_hidden(files: Files) -> None:
    files.hide_what_is_outside()
    files.process(600, LAB, processor=1)
    witness = Witness({0, 1}, 0.05, lambda: (600,), files.view)
    before = witness.look()
    # Seven tenths of its time are those of threads that ended with the load.
    files.process(600, LAB, run_ns=900_000_000, processor=1)
    (files.view.proc / "600/task/600/schedstat").write_text("200000000 0 0\n")
    (files.view.proc / "600/status").write_text("Name:\tgenerator\nCpus_allowed_list:\t1\n")
    files.count(1, programs=90, idle=10)
    files.count(0, programs=1, idle=99)
    seen = witness.since(before)
    assert seen.ratio == pytest.approx(0.01)
    assert not seen.is_above_limit


def test_interrupts_that_wake_an_idle_processor_are_no_hidden_program(files: Files) -> None:
    files.hide_what_is_outside()
    files.process(600, LAB, processor=1)
    witness = Witness({0, 1}, 0.05, lambda: (600,), files.view)
    before = witness.look()
    # The kernel counts a tenth of the second for nobody; its ticks missed some of the run's short turns.
    files.process(600, LAB, run_ns=400_000_000, processor=1)
    files.count(1, programs=35, idle=50)
    files.count(0, idle=100)
    seen = witness.since(before)
    assert (seen.others_s, seen.programs) == (0, {})


def test_without_the_namespace_nothing_hidden_is_counted(files: Files) -> None:
    witness = Witness({0, 1}, 0.05, view=files.view)
    before = witness.look()
    seen = witness.since(before)
    assert (seen.others_s, seen.programs) == (0, {})


def test_no_more_than_the_whole_time_of_a_processor_is_counted(files: Files) -> None:
    witness = Witness({1}, 0.05, view=files.view)
    before = witness.look()
    files.process(500, 1, run_ns=9 * 10**9)
    files.take(1, 50)
    seen = witness.since(before)
    assert seen.ratio == 1.0
    assert seen.others_s == pytest.approx(0.5)


@contextmanager
def busy_foreign_program(processor: int) -> Iterator[int]:
    """Run a busy program on a processor that does not belong to the test: its parent has ended."""
    loop = f"import os\nos.sched_setaffinity(0, [{processor}])\nprint(os.getpid(), flush=True)\nos.close(1)\nwhile True: pass"
    started = subprocess.run(["sh", "-c", '"$0" -c "$1" &', sys.executable, loop], stdout=subprocess.PIPE, text=True, check=True)
    pid = int(started.stdout)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_real_foreign_program_is_seen_on_its_processor_by_its_name() -> None:
    processor = max(os.sched_getaffinity(0))
    witness = Witness({processor}, 0.05, lambda: (os.getpid(),))
    with busy_foreign_program(processor):
        before = witness.look()
        seen: list[Disturbance] = []

        def is_seen() -> bool:
            seen.append(witness.since(before))
            return any(name.startswith("python") for name in seen[-1].programs)

        assert wait_until(is_seen, 20)
    assert seen[-1].others_s > 0
    assert seen[-1].wait_s is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")
def test_a_real_program_outside_of_the_namespace_is_counted() -> None:
    processor = max(os.sched_getaffinity(0))
    script = f"""
from ringroad_lab.deadline import wait_until
from ringroad_lab.facts.witness import HIDDEN, Witness
witness = Witness({{{processor}}}, 0.05)
before = witness.look()
def is_seen():
    seen = witness.since(before)
    return seen.programs.get(HIDDEN, 0) > 0.2 and seen.is_above_limit
assert wait_until(is_seen, 60)
"""
    with busy_foreign_program(processor):
        subprocess.run(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", script], check=True)


def test_without_an_outside_view_the_own_namespace_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGROAD_LAB_OUTSIDE", "987:1")
    assert View.outside() == View()
