"""The inner side of a run: goes through the schedule, and reports the outcomes.

It knows no namespace and no program: test beds come from a factory, and so tests can give it simulated ones.
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
    """A device under test with what it is plugged in to, and who watches them."""

    @abstractmethod
    def record(self) -> DutRecord:
        """Return the device as it is."""

    @abstractmethod
    def collect(self) -> dict[str, int]:
        """Return what the device counted.

        Raises:
            DutError: it does not tell.
        """

    @abstractmethod
    def watched(self) -> Sequence[Series]:
        """Return what was watched since all was there: processor time, memory, steal time."""

    @abstractmethod
    def warnings(self) -> Sequence[str]:
        """Return what speaks against the measurements: processor time that went to others, ..."""

    @abstractmethod
    def logs(self) -> Sequence[LogExcerpt]:
        """Return what its programs said."""


class Bed(Watched):
    """A device under test with its guests, plugged in to a generator."""

    @property
    @abstractmethod
    def generator(self) -> Generator:
        """What offers the load."""

    @abstractmethod
    def generator_version(self) -> str:
        """Return the generator's name and version."""

    @abstractmethod
    def ceiling(self, frame: FrameMix) -> GeneratorCeiling | None:
        """Return what the generator carries by itself, of frames like these; None where that cannot be measured."""

    @abstractmethod
    def run_test_step(self, step: StepChoice, environment: Mapping[str, str]) -> StepRecord:
        """Run a test step with more variables in its environment, and see whether it did what is expected."""

    @abstractmethod
    def check(self) -> None:
        """Check that device and guests live.

        Raises:
            DutError, GuestError: which one does not, with the end of its log.
        """

    @property
    @abstractmethod
    def costs(self) -> CostMeter:
        """What tells the processor time of the device."""

    @abstractmethod
    def install_flows(self, flow_set: FlowSet | None) -> float:
        """Put the entries of a flow set into the device's flow table, or with None its usual ones; return how long that took, s.

        Raises:
            DutError: it has no flow table, or refused.
        """


class Stations(Watched):
    """Two stations that a device joins, for methods that measure between such."""

    @abstractmethod
    def measure(self) -> Outcome:
        """Measure between them.

        Raises:
            LabError: what could not be measured, and why.
        """


class BedFactory(Protocol):
    """Makes what a device is measured in."""

    def make(self, scenario: Scenario, choice: DutChoice) -> AbstractContextManager[Bed]:
        """Build a test bed, and take it down.

        Raises:
            LabError: what could not be built, and why.
        """

    def make_stations(self, scenario: Scenario, choice: DutChoice, settings: MethodSettings) -> AbstractContextManager[Stations]:
        """Join two stations by a device, for a method of such settings, and take everything down.

        Raises:
            LabError: what could not be built, and why.
        """


class NoGenerator(Generator):
    """What there is where stations make their own traffic."""

    def trial(self, request: TrialRequest) -> TrialResult:
        """Refuse."""
        raise GeneratorError("between stations there is no generator")

    def version(self) -> str:
        """Return nothing: there is none."""
        return ""


class AskingGenerator(Generator):
    """A generator that asks before each trial."""

    def __init__(self, generator: Generator, ask: Callable[[], None]) -> None:
        """Take what returns when the trial may begin, or raises."""
        self._generator = generator
        self._ask = ask

    def trial(self, request: TrialRequest) -> TrialResult:
        """Ask, and offer the load."""
        self._ask()
        return self._generator.trial(request)

    def version(self) -> str:
        """Return name and version."""
        return self._generator.version()


class Engine:
    """Measures what is scheduled."""

    def __init__(
        self,
        rounds: Sequence[Round],
        make_method: Callable[[MethodChoice], Method],
        beds: BedFactory,
        tell: Callable[[Event], None],
        is_stopped: Callable[[], bool],
        ask: Callable[[], None] | None = None,
    ) -> None:
        """Take the schedule, what makes methods and test beds, where events go, and who says that it is enough.

        Where it is given, `ask` is called before each trial, and returns when that may begin.
        """
        self._rounds = rounds
        self._make_method = make_method
        self._beds = beds
        self._report = tell
        self._is_stopped = is_stopped
        self._ask = ask

    def run(self, measured: frozenset[int] = frozenset()) -> None:
        """Measure everything that is not there yet.

        A device that does not start, or dies, makes its measurements invalid, with the reason; the others go on.

        Raises:
            RunStoppedError: the user stopped it.
        """
        for planned in self._rounds:
            todo = [step for step in planned.steps if step.number not in measured]
            while todo:
                todo = self._run_round(planned, todo)

    def _run_round(self, planned: Round, todo: list[Step]) -> list[Step]:
        """Measure as much of a round as one start of the device allows; what is left."""
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
                # What was measured is told already; it was not taken down as it should be.
                self._report(Warned(text=f"{planned.dut.label}: {error}"))
                return todo[done:]
            # Not even started: what is left of the round would fare no better, or was of its own kind.
            failed = todo[:1] if todo[0].is_between_stations else [step for step in todo if not step.is_between_stations]
            for step in failed:
                self._give(planned, step, begun_at, _invalid(str(error)), (), {})
            return [step for step in todo if step not in failed]
        return todo[done:]

    def _run_between_stations(self, planned: Round, step: Step) -> None:
        """Make one measurement that has no bed."""
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
            self._give(planned, step, begun_at, outcome, (), counters)
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
        """Make one measurement, with test steps of `whens` around it; whether the bed is still good.

        Throughputs found are left for the methods that follow, by frame size.
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
            # A device that is not as it should be when it starts is started anew for the next measurement.
            outcome, is_alive = _invalid(str(error)), not any(each.failure and each.when == "start" for each in steps)
        except LabError as error:
            outcome, is_alive = _invalid(_cause(bed, error)), False
        # Of trials that others disturbed, the one that counts comes last.
        self._give(planned, step, begun_at, outcome, tuple(sorted(trials, key=lambda trial: trial.started_at)), counters, tuple(steps))
        return is_alive

    def _give(
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
            # Who would have answered may have ended.
            self._stop_if_requested()

    def _stop_if_requested(self) -> None:
        if self._is_stopped():
            raise RunStoppedError("stopped; finished measurements are kept")


def _max_fps(scenario: Scenario, frame: FrameMix, ceiling: GeneratorCeiling | None) -> tuple[float, bool]:
    """Greatest load worth offering, and whether it is the generator that sets it."""
    line_fps = None
    if scenario.link_bps is not None:
        load = Load(frame=frame, rate_fps=0, vlans=scenario.vlans, vnis=scenario.vnis)
        line_fps = min(frame.line_rate_fps(scenario.link_bps, extra_bytes(load, sender)) for sender in (0, 1))
    if ceiling is not None and (line_fps is None or ceiling.ceiling_fps < line_fps):
        return ceiling.ceiling_fps, True
    if line_fps is None:
        raise ScenarioError("what the generator carries cannot be measured over these cables: set `link_bps`, the speed of the links")
    return line_fps, False


def _invalid(reason: str) -> Outcome:
    return Outcome(status=MeasurementStatus.INVALID, reasons=(reason,))


def _cause(bed: Bed, error: LabError) -> str:
    """Why a measurement failed: a device that died says more than a generator that then found nobody."""
    try:
        bed.check()
    except LabError as death:
        return str(death)
    return str(error)
