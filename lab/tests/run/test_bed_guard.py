"""A run that loses its bed, is killed, or is suspended: the run ends, and nothing more of it is stored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from fabricated_runs import fabricated_run
from hand_clock import EPOCH, HandClock
from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import BedError, BedLostError, StoreError
from ringroad_lab.fleet.bed_leases import LOST, BedLease, BedLeases
from ringroad_lab.fleet.bed_overview import overview
from ringroad_lab.fleet.calibration import Calibration
from ringroad_lab.fleet.holder import LEASE_S
from ringroad_lab.fleet.inventory import BedSettings
from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.record import GeneratorCeiling, Measurement, RunRecord, RunState
from ringroad_lab.run import supervisor
from ringroad_lab.run.bed_guard import BedGuard, occupied
from ringroad_lab.run.events import CeilingFound, Ended, Event, MeasurementDone, SelfTestFailed, TrialAsked
from ringroad_lab.run.supervisor import Supervisor
from ringroad_lab.sandbox.leftovers import RUN_VARIABLE, Traces, left_behind
from ringroad_lab.scenario.model import DutChoice, MethodChoice, Scenario
from ringroad_lab.store.result_store import ResultStore
from store_writers import head_of

BED = BedSettings.model_validate({"machines": {"generator": "here"}, "calibration_minimum_fps": {"64": 1e6}})
RUN_ID = "00000000-run"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with ResultStore(str(tmp_path / "results.db")) as store:
        yield store


class Process:
    """A run on bed `a` as a process, whose clock is a file."""

    def __init__(self, store: ResultStore, folder: Path) -> None:
        self.clock_file = folder / "clock"
        self.set_clock(EPOCH)
        argv = [sys.executable, str(Path(__file__).with_name("holding_bed.py")), store.location, str(self.clock_file)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
        self.popen = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=env)
        assert self.read_line() == "measures"

    def set_clock(self, now: float) -> None:
        # Atomically: the other process can read the file at any time.
        new = self.clock_file.with_suffix(".new")
        new.write_text(str(now))
        new.rename(self.clock_file)

    def clock(self) -> float:
        return float(self.clock_file.read_text())

    def measure(self) -> list[str]:
        assert self.popen.stdin
        self.popen.stdin.write("go\n")
        return [self.read_line(), *([self.read_line()] if not self.last.startswith("lost") else [])]

    def read_line(self) -> str:
        assert self.popen.stdout
        self.last = self.popen.stdout.readline().strip()
        return self.last


@pytest.fixture
def process(store: ResultStore, tmp_path: Path) -> Iterator[Process]:
    made = Process(store, tmp_path)
    yield made
    made.popen.kill()
    made.popen.communicate()


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_run_that_was_suspended_until_its_lease_expired_measures_no_more(store: ResultStore, process: Process, is_taken: bool) -> None:
    assert process.measure() == ["trial", "kept"]
    process.popen.send_signal(signal.SIGSTOP)
    assert wait_until(lambda: psutil.Process(process.popen.pid).status() == psutil.STATUS_STOPPED, 10)
    others = BedLeases(store, holder="there:1:2:3", clock=process.clock)
    with pytest.raises(BedError, match="taken"):
        others.take("a", "another")
    process.set_clock(EPOCH + LEASE_S)
    if is_taken:
        assert others.take("a", "another").token == 2
    process.popen.send_signal(signal.SIGCONT)
    (line,) = process.measure()
    assert line.startswith("lost")
    assert process.popen.wait(30) == 0
    assert len(store.get_run(RUN_ID).measurements) == 1
    assert others.states(["a"])["a"].token == 1 + is_taken
    if is_taken:
        # The run did not return the bed, which another run had by then.
        others.renew(BedLease("a", "another", 2, 0.0))


def test_the_bed_of_a_killed_run_is_taken_at_once_with_a_greater_token(store: ResultStore, process: Process) -> None:
    process.popen.kill()
    process.popen.wait()
    lease = BedLeases(store, clock=process.clock).take("a", RUN_ID)
    assert (lease.token, lease.lost_run_id) == (2, RUN_ID)
    assert [each.outcome for each in overview(store, {}, EPOCH).history] == ["", LOST]


# The guard


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def guard_of(store: ResultStore, clock: Callable[[], float], leases: type[BedLeases] = BedLeases) -> BedGuard:
    made = leases(store, clock=clock)
    return BedGuard(made, made.take("a", RUN_ID), Calibration(store, "a", BED, RUN_ID, (), clock))


class CutOff(BedLeases):
    """Leases whose store cannot be reached after they are taken."""

    def renew(self, lease: BedLease) -> float:
        raise StoreError("the network is gone")

    def check(self, lease: BedLease) -> None:
        raise StoreError("the network is gone")


def test_a_run_that_cannot_reach_the_store_continues_until_its_lease_expires(store: ResultStore, clock: HandClock) -> None:
    guard, ended = guard_of(store, clock, CutOff), threading.Event()
    with guard.ending(ended.set):
        clock.now += LEASE_S - 1
        guard.renew()
        guard.check()
        assert not ended.is_set()
        clock.now += 1
        guard.renew()
        assert ended.is_set()
    with pytest.raises(BedLostError, match="cannot be reached"):
        guard.check()


def test_an_expired_lease_ends_the_run_although_the_store_does_not_answer(store: ResultStore) -> None:
    hangs = threading.Event()

    class Hanging(BedLeases):
        def renew(self, lease: BedLease) -> float:
            hangs.wait()
            return 0.0

    made, ended = Hanging(store, lease_s=0.2), threading.Event()
    guard = BedGuard(made, made.take("a", RUN_ID), Calibration(store, "a", BED, RUN_ID, ()))
    with guard, guard.ending(ended.set):
        assert ended.wait(30)
        hangs.set()
    assert guard.is_lost


def test_the_lease_of_a_live_run_is_renewed_automatically(store: ResultStore) -> None:
    renewed = threading.Event()

    class Renewing(BedLeases):
        def renew(self, lease: BedLease) -> float:
            until = super().renew(lease)
            renewed.set()
            return until

    made = Renewing(store, lease_s=20.0)
    lease = made.take("a", RUN_ID)
    with BedGuard(made, lease, Calibration(store, "a", BED, RUN_ID, ())):
        assert renewed.wait(30)
    assert made.states(["a"])["a"].lease_until > lease.until


# The supervisor


class Keeper:
    """Stores a run in memory."""

    def __init__(self) -> None:
        self.measured: list[int] = []
        self.ended: list[RunRecord] = []

    def begin_run(self, record: RunRecord) -> None:
        pass

    def add_measurement(self, run_id: str, measurement: Measurement) -> None:
        self.measured.append(measurement.number)

    def end_run(self, record: RunRecord) -> None:
        self.ended.append(record)


INNER = """
import sys
events = sys.argv[1:]
sys.stdin.readline()
for event in events:
    print(event, flush=True)
    if "trial-asked" in event and sys.stdin.readline() != "go\\n":
        break
sys.stdin.read()
"""


def supervised(monkeypatch: pytest.MonkeyPatch, guard: supervisor.Guard, events: list[Event]) -> tuple[Keeper, Callable[[], RunRecord]]:
    """Return a run whose inner process reports these events, and waits for an answer to each `TrialAsked`."""
    monkeypatch.setattr(supervisor, "INNER", (sys.executable, "-c", INNER, *(event.model_dump_json() for event in events)))
    keeper = Keeper()
    scenario = Scenario(
        name="simulated",
        duts=(DutChoice(label="ovs", driver="ovs"),),
        methods=(MethodChoice(name="throughput"),),
        frames=(parse_frame_mix("64"),),
        private=False,
    )
    made = Supervisor(keeper, lambda _event: None, guard=guard)
    record = head_of(fabricated_run(run_id=RUN_ID))
    return keeper, lambda: made.run(record, (scenario,), lambda whole: whole, is_resumed=False)[0]


def measured(number: int) -> MeasurementDone:
    return MeasurementDone(measurement=fabricated_run().measurements[number])


@pytest.mark.parametrize("how", ["at a trial", "in between"])
def test_a_run_that_lost_its_bed_is_ended_and_stores_nothing_more(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    lost = BedLostError("another has the bed")

    class Losing:
        trials = 0

        @contextmanager
        def ending(self, end: Callable[[], None]) -> Iterator[None]:
            self.end = end
            yield

        def see(self, event: Event) -> None:
            if self.trials == 1 and how == "in between":
                self.trials += 1
                self.end()

        def check(self) -> None:
            self.trials += 1
            if self.trials > 1:
                raise lost

    keeper, run = supervised(monkeypatch, Losing(), [TrialAsked(), measured(0), TrialAsked(), measured(1), Ended()])
    with pytest.raises(BedLostError, match="another has the bed"):
        run()
    assert (keeper.measured, keeper.ended) == ([0], [])


@pytest.mark.parametrize("is_silent", [False, True])
def test_an_unfit_bed_goes_into_quarantine_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, store: ResultStore, is_silent: bool
) -> None:
    ceiling = GeneratorCeiling(transport="veth", frame=parse_frame_mix("64"), ceiling_fps=0.9e6)
    event = SelfTestFailed(text="the generator does not carry 64 frames") if is_silent else CeilingFound(ceiling=ceiling)
    leases = BedLeases(store)
    with occupied("a", BED, leases, store, RUN_ID, ()) as guard:
        keeper, run = supervised(monkeypatch, guard, [event, TrialAsked(), measured(0), Ended()])
        whole = run()
        guard.state = whole.state
    assert (keeper.measured, whole.state) == ([], RunState.FAILED)
    assert "failed its calibration" in whole.failure
    assert leases.states(["a"])["a"].quarantine == whole.failure
    with pytest.raises(BedError, match="failed its calibration"):
        leases.take("a", "another")


# What a run leaves


def test_leftovers_of_a_run_are_found(store: ResultStore, tmp_path: Path) -> None:
    left = subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={**os.environ, RUN_VARIABLE: RUN_ID})
    namespaces, pool = tmp_path / "netns", tmp_path / "pool"
    for folder in (namespaces, pool):
        folder.mkdir()
    for name, pages in (("nr_hugepages", "10"), ("free_hugepages", "10")):
        (pool / name).write_text(pages)
    before = Traces.now(namespaces, pool)
    try:
        (namespaces / "bridge-abcdefgh").touch()
        (namespaces / "somebody-elses").touch()
        (pool / "free_hugepages").write_text("7")
        found = left_behind(before, RUN_ID, with_huge_pages=True, namespaces=namespaces, pool=pool, patience_s=0)
        assert found == [f"process {left.pid} (cat)", "network namespace bridge-abcdefgh", "3 huge pages in use"]
        assert len(left_behind(before, RUN_ID, with_huge_pages=False, namespaces=namespaces, pool=pool, patience_s=0)) == 2
    finally:
        left.communicate()
    (pool / "free_hugepages").write_text("10")
    (namespaces / "bridge-abcdefgh").unlink()
    assert left_behind(before, RUN_ID, with_huge_pages=True, namespaces=namespaces, pool=pool) == []


@pytest.mark.parametrize("state", [RunState.FINISHED, RunState.STOPPED])
def test_an_unclean_bed_is_an_error_unless_the_run_is_finished(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], state: RunState
) -> None:
    monkeypatch.setattr("ringroad_lab.run.bed_guard.left_behind", lambda *_, **__: ["process 7 (vpp)"])
    leases = BedLeases(store)

    def run() -> None:
        with occupied("a", BED, leases, store, RUN_ID, ()) as guard:
            guard.state = state

    if state is RunState.FINISHED:
        run()
        assert "left process 7 (vpp); it is in quarantine" in capfd.readouterr().err
    else:
        with pytest.raises(BedError, match=r"left process 7 \(vpp\)"):
            run()
    assert "left process 7 (vpp)" in leases.states(["a"])["a"].quarantine
    assert overview(store, {}, EPOCH).history[0].outcome.startswith(f"{state.value}; clean-up failed")


def test_a_bed_with_processes_of_the_previous_run_is_unfit(store: ResultStore, process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringroad_lab.run.bed_guard.await_no_processes", lambda run_id: [f"process 7 of {run_id}"])
    process.popen.kill()
    process.popen.wait()
    leases = BedLeases(store, clock=process.clock)
    with (
        pytest.raises(BedError, match=rf"which lost the bed, is still running: process 7 of {RUN_ID}"),
        occupied("a", BED, leases, store, "2", ()),
    ):
        raise AssertionError("the run started")
    assert "is still running" in leases.states(["a"])["a"].quarantine
