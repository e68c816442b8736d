"""The inner side of a run: carries out the schedule, and reports the outcomes.

The engine does not depend on namespaces or programs: test beds come from a factory, so that tests can simulate them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from ringroad_lab.cost import CostMeter
from ringroad_lab.disturbances import tally_disturbances
from ringroad_lab.errors import (
    DutError,
    GeneratorError,
    GuestError,
    HostError,
    LabError,
    RunStoppedError,
    SandboxError,
    ScenarioError,
    StepFailedError,
)
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.generator.interface import Generator
from ringroad_lab.generator.traffic import extra_bytes
from ringroad_lab.method.interface import DisturbedRepeats, Method, MethodContext, MethodSettings
from ringroad_lab.method.throughput import ThroughputMethod
from ringroad_lab.record import (
    DutRecord,
    GeneratorCeiling,
    LogExcerpt,
    Measurement,
    MeasurementStatus,
    Outcome,
    Series,
    StepRecord,
)
from ringroad_lab.run.events import (
    BedEnded,
    BedReady,
    CeilingFound,
    Event,
    MeasurementDone,
    RemainingKnown,
    StepBegan,
    TrialDone,
    Warned,
)
from ringroad_lab.scenario.model import DutChoice, MethodChoice, Scenario, StepChoice
from ringroad_lab.scenario.plan import TRIAL_OVERHEAD_S, measuring_s
from ringroad_lab.scenario.schedule import Round, Step
from ringroad_lab.trial import FlowSet, Load, TrialRequest, TrialResult


class Watched(ABC):
    """A device under test with its peers, all of them sampled."""

    @abstractmethod
    def record(self) -> DutRecord:
        """Return the record of the device."""

    @abstractmethod
    def collect(self) -> dict[str, int]:
        """Return the device's counters.

        Raises:
            DutError: the device does not report them.
        """

    @abstractmethod
    def watched(self) -> Sequence[Series]:
        """Return the samples since the start of all parts: processor time, memory, steal time."""

    @abstractmethod
    def warnings(self) -> Sequence[str]:
        """Return reasons to doubt the measurements: processor time used by other programs, ..."""

    @abstractmethod
    def logs(self) -> Sequence[LogExcerpt]:
        """Return the output of the programs."""


class Bed(Watched):
    """A device under test with its guests, connected to a generator."""

    @property
    @abstractmethod
    def generator(self) -> Generator:
        """The generator of the load."""

    @abstractmethod
    def generator_version(self) -> str:
        """Return the generator's name and version."""

    @abstractmethod
    def ceiling(self, frame: FrameMix) -> GeneratorCeiling | None:
        """Return the generator's ceiling for such frames; None if the ceiling cannot be measured."""

    @abstractmethod
    def run_test_step(self, step: StepChoice, environment: Mapping[str, str]) -> StepRecord:
        """Run a test step with additional environment variables, and check its result."""

    @abstractmethod
    def check(self) -> None:
        """Check that the device and its guests are alive.

        Raises:
            DutError, GuestError: one of them ended; the message has the end of its log.
        """

    @property
    @abstractmethod
    def costs(self) -> CostMeter:
        """Measures the processor time of the device."""

    @abstractmethod
    def install_flows(self, flow_set: FlowSet | None) -> float:
        """Put the entries of a flow set into the device's flow table, or its default entries if None; return how long that took, s.

        Raises:
            DutError: the device has no flow table, or rejected the entries.
        """


class Stations(Watched):
    """Two stations joined by a device, for methods that measure between stations."""

    @abstractmethod
    def measure(self) -> Outcome:
        """Measure between the stations.

        Raises:
            LabError: the measurement failed.
        """


class BedFactory(Protocol):
    """Makes test beds and stations."""

    def make(self, scenario: Scenario, choice: DutChoice) -> AbstractContextManager[Bed]:
        """Build a test bed, and take it down at the end of the block.

        Raises:
            LabError: something could not be built.
        """

    def make_stations(self, scenario: Scenario, choice: DutChoice, settings: MethodSettings) -> AbstractContextManager[Stations]:
        """Join two stations by a device, for a method with these settings, and take everything down at the end of the block.

        Raises:
            LabError: something could not be built.
        """


class NoGenerator(Generator):
    """The generator of measurements whose stations make their own traffic: it refuses trials."""

    def trial(self, request: TrialRequest) -> TrialResult:
        """Refuse the trial."""
        raise GeneratorError("between stations there is no generator")

    def version(self) -> str:
        """Return an empty text: there is no generator."""
        return ""


class AskingGenerator(Generator):
    """A generator that asks for permission before each trial."""

    def __init__(self, generator: Generator, ask: Callable[[], None]) -> None:
        """Take `ask`, which returns when the trial is allowed to start, or raises."""
        self._generator = generator
        self._ask = ask

    def trial(self, request: TrialRequest) -> TrialResult:
        """Ask for permission, and offer the load."""
        self._ask()
        return self._generator.trial(request)

    def version(self) -> str:
        """Return name and version."""
        return self._generator.version()


class Engine:
    """Carries out a schedule of measurements."""

    def __init__(
        self,
        rounds: Sequence[Round],
        make_method: Callable[[MethodChoice], Method],
        beds: BedFactory,
        report: Callable[[Event], None],
        is_stopped: Callable[[], bool],
        ask: Callable[[], None] | None = None,
    ) -> None:
        """Take the schedule, the factories of methods and test beds, the callback for events, and the check for a stop request.

        If given, `ask` is called before each trial, and returns when the trial is allowed to start.
        """
        self._rounds = rounds
        self._make_method = make_method
        self._beds = beds
        self._report = report
        self._is_stopped = is_stopped
        self._ask = ask

    def run(self, measured: frozenset[int] = frozenset()) -> None:
        """Make all measurements that are missing.

        A device that does not start, or dies, makes its measurements invalid, with the reason; the other measurements continue.

        Raises:
            RunStoppedError: the user stopped the run.
        """
        for planned in self._rounds:
            todo = [step for step in planned.steps if step.number not in measured]
            while todo:
                todo = self._run_round(planned, todo)

    def _run_round(self, planned: Round, todo: list[Step]) -> list[Step]:
        """Measure as much of a round as one start of the device allows; return the remaining steps."""
        self._stop_if_requested()
        begun_at = time.time()
        done = 0
        throughputs_fps: dict[str, float] = {}
        try:
            if todo[0].is_between_stations:
                self._run_between_stations(planned, todo[0])
                return todo[1:]
            with self._beds.make(planned.scenario, planned.dut) as bed:
                self._report(BedReady(dut=bed.record(), repetition=planned.repetition, generator_version=bed.generator_version()))
                try:
                    while done < len(todo) and not todo[done].is_between_stations:
                        whens = {"before", "after"} | ({"start"} if not done else set()) | ({"end"} if done + 1 == len(todo) else set())
                        is_alive = self._run_step(bed, planned, todo[done], throughputs_fps, whens)
                        done += 1
                        if not is_alive:
                            break
                finally:
                    self._report_end(planned, bed)
        except RunStoppedError:
            raise
        except (DutError, GuestError, GeneratorError, HostError, SandboxError) as error:
            if done:
                # The measurements are reported already; only the bed was not taken down properly.
                self._report(Warned(text=f"{planned.dut.label}: {error}"))
                return todo[done:]
            # The bed did not start: the other steps on a bed would fail too. A step between stations fails alone.
            failed = todo[:1] if todo[0].is_between_stations else [step for step in todo if not step.is_between_stations]
            for step in failed:
                self._report_measurement(planned, step, begun_at, _invalid(str(error)), (), {})
            return [step for step in todo if step not in failed]
        return todo[done:]

    def _run_between_stations(self, planned: Round, step: Step) -> None:
        """Make one measurement that needs no bed."""
        method = self._make_method(step.method)
        begun_at = time.time()
        with self._beds.make_stations(planned.scenario, planned.dut, method.settings) as stations:
            self._report(BedReady(dut=stations.record(), repetition=planned.repetition))
            self._report_begin(planned, step, method)
            context = MethodContext(
                generator=NoGenerator(),
                frame=step.frame,
                max_fps=0.0,
                is_max_generator_bound=False,
                bidirectional=False,
                flows=1,
                on_trial=lambda _trial: None,
                remaining_s=lambda rest: self._report(RemainingKnown(number=step.number, remaining_s=max(0.0, rest))),
                between_stations=stations.measure,
            )
            counters: dict[str, int] = {}
            try:
                self._ask_for_trial()
                outcome = method.measure(context)
                counters = stations.collect()
            except RunStoppedError:
                raise
            except LabError as error:
                outcome = _invalid(str(error))
            self._report_measurement(planned, step, begun_at, outcome, (), counters)
            self._report_end(planned, stations)

    def _report_end(self, planned: Round, watched: Watched) -> None:
        for warning in watched.warnings():
            self._report(Warned(text=f"{planned.dut.label}: {warning}"))
        self._report(BedEnded(series=tuple(watched.watched()), logs=tuple(watched.logs())))

    def _report_begin(self, planned: Round, step: Step, method: Method, *, knows_throughput: bool = False) -> None:
        self._report(
            StepBegan(
                number=step.number,
                dut=planned.dut.label,
                method=step.method.name,
                frame=step.frame.name,
                repetition=planned.repetition,
                expected_s=measuring_s(method, TRIAL_OVERHEAD_S, knows_throughput=knows_throughput),
            )
        )

    def _run_step(self, bed: Bed, planned: Round, step: Step, throughputs_fps: dict[str, float], whens: set[str]) -> bool:
        """Make one measurement, with test steps of `whens` around it; return whether the bed is still usable.

        The throughput is kept by frame size for the methods that follow.
        """
        self._stop_if_requested()
        method = self._make_method(step.method)
        trials: list[TrialResult] = []

        def on_trial(trial: TrialResult) -> None:
            trials.append(trial)
            self._report(
                TrialDone(
                    number=step.number,
                    purpose=trial.request.purpose,
                    rate_fps=trial.request.load.rate_fps,
                    verdict=trial.verdict,
                    loss_ratio=trial.loss_ratio,
                    is_disturbed=trial.is_disturbed,
                )
            )
            self._stop_if_requested()

        self._report_begin(planned, step, method, knows_throughput=step.frame.name in throughputs_fps)
        begun_at = time.time()
        is_alive = True
        counters: dict[str, int] = {}
        steps: list[StepRecord] = []

        def run_test_steps(*moments: str) -> None:
            environment = {"DUT": planned.dut.label, "METHOD": step.method.name, "FRAME": step.frame.name}
            chosen = [each for moment in moments if moment in whens for each in planned.scenario.steps if each.when == moment]
            for each in chosen:
                steps.append(bed.run_test_step(each, {f"RINGROAD_LAB_{name}": value for name, value in environment.items()}))
                if steps[-1].failure:
                    raise StepFailedError(f"test step {each.name or each.run!r} ({each.when}, on {each.on}): {steps[-1].failure}")

        try:
            run_test_steps("start", "before")
            ceiling = bed.ceiling(step.frame)
            if ceiling is not None:
                self._report(CeilingFound(ceiling=ceiling))
            max_fps, is_generator_bound = _max_fps(planned.scenario, step.frame, ceiling)
            context = MethodContext(
                generator=AskingGenerator(bed.generator, self._ask_for_trial) if self._ask else bed.generator,
                frame=step.frame,
                max_fps=max_fps,
                is_max_generator_bound=is_generator_bound,
                bidirectional=planned.scenario.bidirectional,
                flows=planned.scenario.flows,
                vlans=planned.scenario.vlans,
                vnis=planned.scenario.vnis,
                on_trial=on_trial,
                remaining_s=lambda rest: self._report(RemainingKnown(number=step.number, remaining_s=max(0.0, rest))),
                repeats=DisturbedRepeats(planned.scenario.disturbance),
                throughput_fps=throughputs_fps.get(step.frame.name),
                costs=bed.costs,
                install_flows=bed.install_flows,
            )
            outcome = method.measure(context)
            bed.check()
            counters = bed.collect()
            run_test_steps("after", "end")
            is_found = isinstance(method, ThroughputMethod) and method.is_lossless
            if is_found and (found := outcome.metrics.get(outcome.headline)) is not None:
                throughputs_fps[step.frame.name] = found.value
        except RunStoppedError:
            raise
        except StepFailedError as error:
            # After a failed `start` step the device is restarted for the next measurement.
            outcome, is_alive = _invalid(str(error)), not any(each.failure and each.when == "start" for each in steps)
        except LabError as error:
            outcome, is_alive = _invalid(_cause(bed, error)), False
        # Sorted by time: of a trial and its repeats, the one that counts is reported last.
        self._report_measurement(
            planned, step, begun_at, outcome, tuple(sorted(trials, key=lambda trial: trial.started_at)), counters, tuple(steps)
        )
        return is_alive

    def _report_measurement(
        self,
        planned: Round,
        step: Step,
        begun_at: float,
        outcome: Outcome,
        trials: tuple[TrialResult, ...],
        counters: dict[str, int],
        steps: tuple[StepRecord, ...] = (),
    ) -> None:
        tally = tally_disturbances(trials)
        if tally.left and outcome.metrics:
            status = MeasurementStatus.DISTURBED if outcome.status is MeasurementStatus.OK else outcome.status
            outcome = outcome.model_copy(update={"status": status, "reasons": (*outcome.reasons, tally.describe())})
        measurement = Measurement(
            number=step.number,
            dut=planned.dut.label,
            topology=planned.scenario.topology.value,
            method=step.method.name,
            frame=step.frame,
            repetition=planned.repetition,
            is_noise_floor=planned.is_noise_floor,
            started_at=begun_at,
            elapsed_s=max(0.0, time.time() - begun_at),
            outcome=outcome,
            trials=trials,
            dut_counters=counters,
            steps=steps,
        )
        self._report(MeasurementDone(measurement=measurement))

    def _ask_for_trial(self) -> None:
        if self._ask:
            self._ask()
            # The outer process may have ended instead of answering.
            self._stop_if_requested()

    def _stop_if_requested(self) -> None:
        if self._is_stopped():
            raise RunStoppedError("stopped; finished measurements are kept")


def _max_fps(scenario: Scenario, frame: FrameMix, ceiling: GeneratorCeiling | None) -> tuple[float, bool]:
    """Return the greatest load to offer, and whether the generator limits it."""
    line_fps = None
    if scenario.link_bps is not None:
        load = Load(frame=frame, rate_fps=0, vlans=scenario.vlans, vnis=scenario.vnis)
        line_fps = min(frame.line_rate_fps(scenario.link_bps, extra_bytes(load, sender)) for sender in (0, 1))
    if ceiling is not None and (line_fps is None or ceiling.ceiling_fps < line_fps):
        return ceiling.ceiling_fps, True
    if line_fps is None:
        raise ScenarioError("the generator's ceiling cannot be measured over these cables: set `link_bps`, the speed of the links")
    return line_fps, False


def _invalid(reason: str) -> Outcome:
    return Outcome(status=MeasurementStatus.INVALID, reasons=(reason,))


def _cause(bed: Bed, error: LabError) -> str:
    """Return why a measurement failed: a dead device is the cause of a generator's error."""
    try:
        bed.check()
    except LabError as death:
        return str(death)
    return str(error)
