"""The schedule runner with simulated devices: which measurements it makes, in which order, and how it handles failing devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

import pytest

from ringroad_lab.cost import CostMeter
from ringroad_lab.disturbances import tally_disturbances
from ringroad_lab.errors import DutError, HostError, RunStoppedError
from ringroad_lab.frame_size import FrameMix, parse_frame_mix
from ringroad_lab.generator.interface import Generator
from ringroad_lab.method.interface import MethodSettings
from ringroad_lab.method.message_size import MESSAGES, MessageSizeSettings
from ringroad_lab.record import (
    GIVEN_UP,
    Better,
    DutRecord,
    GeneratorCeiling,
    LogExcerpt,
    Measurement,
    MeasurementStatus,
    Metric,
    Outcome,
    Series,
    StepRecord,
    SweepPart,
)
from ringroad_lab.run.events import DeviceGivenUp, Event, MeasurementBegan, MeasurementDone, SetupEnded, SetupReady, TrialDone, Warned
from ringroad_lab.run.interface import Samples, Setup, Stations
from ringroad_lab.run.schedule_runner import FailedStarts, ScheduleRunner
from ringroad_lab.scenario.model import DutChoice, MethodChoice, Scenario, StepChoice
from ringroad_lab.scenario.schedule import schedule
from ringroad_lab.topology import Topology
from ringroad_lab.trial import Disturbance, DisturbanceLimits, FlowSet, TrialRequest, TrialResult
from simulated_bench import SimulatedCosts
from simulated_generator import SimulatedDut, SimulatedGenerator

CAPACITY_FPS = {"slow": 1e6, "fast": 3e6}
CEILING_FPS = 2e6


class BusyNeighbour(SimulatedGenerator):
    """A generator with another program that takes a third of a processor in every n-th trial."""

    every = 0

    def trial(self, request: TrialRequest) -> TrialResult:
        number = self.trials
        taken_s = 0.3 if self.every and number % self.every == 0 else 0.0
        seen = Disturbance(limit=0.05, elapsed_s=1.0, processor=1, others_s=taken_s, programs={"make": taken_s})
        return super().trial(request).model_copy(update={"disturbance": seen})


class SimulatedSetup:
    """A test setup with a simulated device, which dies after `dies_at` trials."""

    def __init__(self, label: str, dies_at: int | None) -> None:
        self._label = label
        self._dies_at = dies_at
        self._generator = BusyNeighbour(SimulatedDut(capacity_fps=CAPACITY_FPS[label], dies_at_trial=dies_at), ceiling_fps=CEILING_FPS)

    @property
    def generator(self) -> Generator:
        return self._generator

    def generator_version(self) -> str:
        return self._generator.version()

    def record(self) -> DutRecord:
        return DutRecord(label=self._label, driver="simulated")

    def ceiling(self, frame: FrameMix) -> GeneratorCeiling:
        return GeneratorCeiling(transport="simulated", frame=frame, ceiling_fps=CEILING_FPS)

    def run_test_step(self, step: StepChoice, environment: Mapping[str, str]) -> StepRecord:
        failure = "failed on purpose" if step.run == "false" else ""
        return StepRecord(when=step.when, on=step.on, run=f"{step.run} {environment['RINGROAD_LAB_FRAME']}", failure=failure)

    def check(self) -> None:
        if self._dies_at is not None and self._generator.trials >= self._dies_at:
            raise DutError(f"{self._label} ended: out of memory")

    @property
    def costs(self) -> CostMeter:
        return SimulatedCosts()

    def install_flows(self, flow_set: FlowSet | None) -> float:
        raise DutError(f"{self._label} has no flow table")

    def collect(self) -> dict[str, int]:
        return {"trials": self._generator.trials}


class FabricatedSamples:
    """Some output of one program."""

    def __init__(self, source: str, *warnings: str) -> None:
        self._source = source
        self._warnings = warnings

    def series(self) -> Sequence[Series]:
        return ()

    def warnings(self) -> Sequence[str]:
        return self._warnings

    def logs(self) -> Sequence[LogExcerpt]:
        return (LogExcerpt(source=self._source, text="some output"),)


class SimulatedStations:
    """Stations with a fabricated sweep; the sweep of the slow device fails."""

    parts: ClassVar[tuple[SweepPart, ...]] = ()

    def __init__(self, label: str, settings: MessageSizeSettings) -> None:
        self._label = label
        self._settings = settings

    def record(self) -> DutRecord:
        return DutRecord(label=self._label, driver="simulated")

    def collect(self) -> dict[str, int]:
        return {"1.rx_frames": 7}

    def measure(self) -> Outcome:
        if self._label == "slow":
            raise DutError("slow ended: out of memory")
        metric = Metric(value=self._settings.max_bytes, unit="bit/s", better=Better.HIGHER)
        name = "netpipe_throughput_bps"
        return Outcome(status=MeasurementStatus.OK, headline=name, metrics={name: metric}, parts=self.parts)


def scenario(*, repetitions: int = 2, methods: tuple[str, ...] = ("throughput",), pairs: int = 0) -> Scenario:
    return Scenario(
        name="simulated",
        duts=tuple(DutChoice(label=label, driver="simulated") for label in CAPACITY_FPS),
        methods=tuple(MethodChoice(name=name) for name in methods),
        frames=(parse_frame_mix("64"), parse_frame_mix("1518")),
        repetitions=repetitions,
        noise_floor_pairs=pairs,
    )


class Lab:
    """A schedule runner, its test setups, and the events that it emitted."""

    def __init__(self, scenario: Scenario, deaths: dict[str, list[int | None]] | None = None) -> None:
        self.events: list[Event] = []
        self.stop_at: Callable[[Event], bool] = lambda _event: False
        self._deaths = deaths or {}
        self._stopped = False
        self.open_setups = 0
        self.starts = 0
        self.no_stations = ""
        self.no_end = ""
        self.runner = ScheduleRunner(schedule((scenario,)), self, self._take, lambda: self._stopped)

    @contextmanager
    def make_stations(self, scenario: Scenario, choice: DutChoice, settings: MethodSettings) -> Iterator[tuple[Stations, Samples]]:
        assert isinstance(settings, MessageSizeSettings)
        assert scenario.topology is Topology.P2P
        if self.no_stations:
            raise DutError(self.no_stations)
        self.open_setups += 1
        yield SimulatedStations(choice.label, settings), FabricatedSamples(f"station of {choice.label}", "others took time")
        self.open_setups -= 1

    @contextmanager
    def make(self, scenario: Scenario, choice: DutChoice) -> Iterator[tuple[Setup, Samples]]:
        deaths = self._deaths.get(choice.label, [])
        dies_at = deaths.pop(0) if deaths else None
        if dies_at == 0:
            self.starts += 1
            raise DutError(f"{choice.label} did not start: no device {self.starts}\nits log")
        self.open_setups += 1
        try:
            yield SimulatedSetup(choice.label, dies_at), FabricatedSamples(choice.label)
        finally:
            self.open_setups -= 1
        if self.no_end:
            raise HostError(self.no_end)

    def _take(self, event: Event) -> None:
        self.events.append(event)
        self._stopped = self._stopped or self.stop_at(event)

    def measurements(self) -> list[Measurement]:
        return [event.measurement for event in self.events if isinstance(event, MeasurementDone)]


def test_devices_take_turns_and_every_measurement_is_made_once() -> None:
    lab = Lab(scenario(repetitions=2, pairs=1))
    lab.runner.run()
    starts = [event.dut.label for event in lab.events if isinstance(event, SetupReady)]
    assert starts == ["slow", "fast", "fast", "slow", "slow", "slow"]
    assert [m.number for m in lab.measurements()] == list(range(12))
    assert [m.is_noise_floor for m in lab.measurements()] == [False] * 8 + [True] * 4
    assert lab.open_setups == 0
    for measurement in lab.measurements():
        assert measurement.trials
        assert measurement.dut_counters["trials"] >= len(measurement.trials)


def test_a_search_ended_by_the_generator_is_a_lower_bound() -> None:
    lab = Lab(scenario(repetitions=1))
    lab.runner.run()
    by_dut = {m.dut: m.outcome for m in lab.measurements()}
    assert by_dut["slow"].status is MeasurementStatus.OK
    assert by_dut["slow"].metrics[by_dut["slow"].headline].value == pytest.approx(1e6, rel=0.02)
    assert by_dut["fast"].status is MeasurementStatus.LOWER_BOUND
    assert by_dut["fast"].metrics[by_dut["fast"].headline].value == pytest.approx(CEILING_FPS, rel=0.02)


def test_a_device_that_does_not_start_is_invalid_and_the_others_continue() -> None:
    lab = Lab(scenario(repetitions=1), {"slow": [0]})
    lab.runner.run()
    outcomes = {(m.dut, m.frame.name): m.outcome for m in lab.measurements()}
    for frame in ("64", "1518"):
        assert outcomes["slow", frame].status is MeasurementStatus.INVALID
        assert outcomes["slow", frame].reasons == ("slow did not start: no device 1\nits log",)
        assert not outcomes["slow", frame].metrics
        assert outcomes["fast", frame].status is MeasurementStatus.LOWER_BOUND


def test_a_device_is_given_up_after_three_starts_that_failed_in_the_same_way() -> None:
    lab = Lab(scenario(repetitions=9), {"slow": [None, 0, 0, None, *[0] * 5]})
    lab.runner.run()
    # The first two failures were followed by a start.
    assert lab.starts == 5
    (given_up,) = [event for event in lab.events if isinstance(event, DeviceGivenUp)]
    assert (given_up.dut, given_up.reason.startswith(GIVEN_UP)) == ("slow", True)
    untried = [m for m in lab.measurements() if m.dut == "slow" and m.repetition >= 7]
    assert [m.outcome.reasons for m in untried] == [(given_up.reason,)] * 4
    assert "no device 5\nits log" in given_up.reason
    # It is told before the first of them, and the other device is not concerned.
    ended = [event for event in lab.events if isinstance(event, DeviceGivenUp | MeasurementDone)]
    assert ended.index(MeasurementDone(measurement=untried[0])) == ended.index(given_up) + 1
    assert sum(m.outcome.status is MeasurementStatus.LOWER_BOUND for m in lab.measurements() if m.dut == "fast") == 18
    assert [m.number for m in sorted(lab.measurements(), key=lambda m: m.number)] == list(range(36))


def test_starts_that_fail_in_different_ways_are_repeated() -> None:
    failed = FailedStarts()
    for error in (DutError("x did not start: no memory"), HostError("x did not start: no memory"), DutError("x did not start: no port")):
        for _ in range(2):
            failed.add(error)
            assert failed.why_given_up is None
    # What programs print, and the names of a start, differ where the failure does not.
    failed.add(DutError("x did not start: no port\nlog of 12:31"))
    assert failed.why_given_up


def test_stations_that_cannot_be_built_are_given_up() -> None:
    lab = Lab(scenario(repetitions=5, methods=("message-size",)))
    lab.no_stations = "no namespace x1"
    lab.runner.run()
    assert sum(m.outcome.reasons == ("no namespace x1",) for m in lab.measurements()) == 6
    assert [event.dut for event in lab.events if isinstance(event, DeviceGivenUp)] == ["fast", "slow"]
    assert len(lab.measurements()) == 10


def test_a_dead_device_is_restarted_for_remaining_measurements() -> None:
    lab = Lab(scenario(repetitions=1), {"slow": [3]})
    lab.runner.run()
    first, second = [m.outcome for m in lab.measurements() if m.dut == "slow"]
    assert first.status is MeasurementStatus.INVALID
    assert first.reasons == ("slow ended: out of memory",)
    assert second.status is MeasurementStatus.OK
    assert sum(isinstance(event, SetupEnded) for event in lab.events) == 3


def test_a_stop_ends_the_run_after_the_trial_under_way() -> None:
    lab = Lab(scenario())
    lab.stop_at = lambda event: isinstance(event, TrialDone) and event.number == 1
    with pytest.raises(RunStoppedError):
        lab.runner.run()
    assert [m.number for m in lab.measurements()] == [0]
    assert sum(isinstance(event, TrialDone) and event.number == 1 for event in lab.events) == 1
    assert lab.open_setups == 0


def test_finished_measurements_are_not_repeated() -> None:
    lab = Lab(scenario(repetitions=1))
    lab.runner.run(frozenset({0, 1, 3}))
    assert [m.number for m in lab.measurements()] == [2]
    assert [event.dut for event in lab.events if isinstance(event, MeasurementBegan)] == ["fast"]


@pytest.mark.parametrize("acceptable_loss_ratio", [0.0, 0.01])
def test_methods_get_an_earlier_throughput_without_loss(acceptable_loss_ratio: float) -> None:
    base = scenario(repetitions=1, methods=("throughput", "latency"))
    throughput = MethodChoice(name="throughput", settings={"acceptable_loss_ratio": acceptable_loss_ratio})
    lab = Lab(base.model_copy(update={"methods": (throughput, *base.methods[1:])}))
    lab.runner.run()
    purposes = {trial.request.purpose for m in lab.measurements() if m.method == "latency" for trial in m.trials}
    assert "latency" in purposes
    # If the throughput is known, the latency method needs no search.
    assert ("search" in purposes) is (acceptable_loss_ratio > 0)


def test_message_sizes_are_measured_once_between_stations_and_the_rest_continues() -> None:
    lab = Lab(scenario(repetitions=1, methods=("throughput", "message-size", "frame-loss")))
    lab.runner.run()
    assert lab.open_setups == 0
    assert [m.number for m in lab.measurements()] == list(range(10))
    sweeps = {m.dut: m for m in lab.measurements() if m.method == "message-size"}
    assert sweeps["fast"].frame == MESSAGES
    assert sweeps["fast"].outcome.metrics["netpipe_throughput_bps"].value == 131072
    assert sweeps["fast"].dut_counters == {"1.rx_frames": 7}
    sources = [log.source for event in lab.events if isinstance(event, SetupEnded) for log in event.logs]
    assert {"station of fast", "station of slow"} <= set(sources)
    assert "slow: others took time" in [event.text for event in lab.events if isinstance(event, Warned)]
    assert sweeps["slow"].outcome.status is MeasurementStatus.INVALID
    assert sweeps["slow"].outcome.reasons == ("slow ended: out of memory",)
    assert not [m for m in lab.measurements() if m.method == "frame-loss" and m.outcome.status is MeasurementStatus.INVALID]


def test_sweeps_with_disturbed_parts_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    calm, loud = (Disturbance(limit=0.05, elapsed_s=1.0, processor=1, others_s=taken_s) for taken_s in (0.0, 0.4))
    repeated = SweepPart(name="sockperf-udp, 14 bytes", disturbance=loud, is_disturbed=True, is_repeated=True)
    kept = repeated.model_copy(update={"disturbance": calm, "is_disturbed": False, "is_repeated": False})
    left = repeated.model_copy(update={"is_repeated": False})
    for parts, status in (((repeated, kept), MeasurementStatus.OK), ((repeated, left), MeasurementStatus.DISTURBED)):
        monkeypatch.setattr(SimulatedStations, "parts", parts)
        lab = Lab(scenario(repetitions=1, methods=("message-size",)))
        lab.runner.run()
        sweep = next(m for m in lab.measurements() if m.dut == "fast")
        assert sweep.outcome.status is status
        assert tally_disturbances(sweep.watched).disturbed == sum(part.is_disturbed for part in parts)
    (reason,) = sweep.outcome.reasons
    assert reason == "others disturbed 2 of 2 trials, and its figures rest on 1 of these; at worst they took 40% of processor 1"


def test_stations_that_cannot_be_built_are_invalid_and_the_rest_is_measured() -> None:
    lab = Lab(scenario(repetitions=1, methods=("message-size", "throughput")))
    lab.no_stations = "slow is on another machine"
    lab.runner.run()
    assert [m.number for m in lab.measurements()] == list(range(6))
    invalid = [m for m in lab.measurements() if m.outcome.status is MeasurementStatus.INVALID]
    assert {m.method for m in invalid} == {"message-size"}
    assert {m.outcome.reasons for m in invalid} == {("slow is on another machine",)}


def test_a_dead_device_is_restarted_even_if_its_setup_cannot_be_taken_down() -> None:
    lab = Lab(scenario(repetitions=1), {"slow": [3]})
    lab.no_end = "the other machine does not answer"
    lab.runner.run()
    first, second = [m.outcome for m in lab.measurements() if m.dut == "slow"]
    assert first.reasons == ("slow ended: out of memory",)
    assert second.status is MeasurementStatus.OK
    assert "slow: the other machine does not answer" in [event.text for event in lab.events if isinstance(event, Warned)]


def test_test_steps_run_around_their_measurements() -> None:
    steps = tuple(StepChoice(when=when, run="true") for when in ("after", "end", "before", "start"))
    lab = Lab(scenario(repetitions=1).model_copy(update={"steps": steps}))
    lab.runner.run()
    whens = [[step.when for step in m.steps] for m in lab.measurements() if m.dut == "slow"]
    assert whens == [["start", "before", "after"], ["before", "after", "end"]]
    assert lab.measurements()[0].steps[0].run == "true 64"


@pytest.mark.parametrize(
    ("when", "failing", "trials"),
    [("before", [0, 1], False), ("after", [0, 1], True), ("start", [0, 1], False), ("end", [1], True)],
)
def test_a_failed_step_makes_only_its_measurement_invalid(when: str, failing: list[int], trials: bool) -> None:
    step = StepChoice.model_validate({"name": "flows are there", "when": when, "run": "false"})
    lab = Lab(scenario(repetitions=1).model_copy(update={"steps": (step,)}))
    lab.runner.run()
    slow = [m for m in lab.measurements() if m.dut == "slow"]
    assert [number for number, m in enumerate(slow) if m.outcome.status is MeasurementStatus.INVALID] == failing
    for number in failing:
        assert slow[number].outcome.reasons == (f"test step 'flows are there' ({when}, on dut): failed on purpose",)
        assert not slow[number].outcome.metrics
        assert bool(slow[number].trials) == trials
    assert lab.open_setups == 0


@pytest.mark.parametrize(("every", "extra_trials", "status"), [(1, 0, MeasurementStatus.DISTURBED), (2, 1000, MeasurementStatus.OK)])
def test_results_from_disturbed_trials_are_marked(
    every: int, extra_trials: int, status: MeasurementStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BusyNeighbour, "every", every)
    limits = DisturbanceLimits(extra_trials=extra_trials, extra_s=1e6)
    lab = Lab(scenario(repetitions=1).model_copy(update={"disturbance": limits}))
    lab.runner.run()
    slow = [m for m in lab.measurements() if m.dut == "slow"]
    assert {m.outcome.status for m in slow} == {status}
    for m in slow:
        assert any("at worst they took 30% of processor 1 (make 30%)" in reason for reason in m.outcome.reasons) is (extra_trials == 0)
        assert any(trial.is_repeated for trial in m.trials)
    # A status worse than disturbed is kept; its reasons name the disturbance too.
    fast = [m for m in lab.measurements() if m.dut == "fast"]
    assert {m.outcome.status for m in fast} == {MeasurementStatus.LOWER_BOUND}
    assert any(event.is_disturbed for event in lab.events if isinstance(event, TrialDone))
