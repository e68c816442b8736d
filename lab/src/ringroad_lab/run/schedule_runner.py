"""The inner side of a run: carries out the schedule, and emits an event for each outcome.

The runner does not depend on namespaces or programs: test setups come from a factory, so that tests can simulate them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

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
from ringroad_lab.generator.interface import Generator, WrappedGenerator
from ringroad_lab.generator.traffic import extra_bytes
from ringroad_lab.method.interface import DisturbedRepeats, Method, MethodContext
from ringroad_lab.method.throughput import ThroughputMethod
from ringroad_lab.record import (
    GIVEN_UP,
    GeneratorCeiling,
    Measurement,
    MeasurementStatus,
    Outcome,
    StepRecord,
)
from ringroad_lab.run.events import (
    CeilingFound,
    DeviceGivenUp,
    Event,
    MeasurementBegan,
    MeasurementDone,
    RemainingKnown,
    SetupEnded,
    SetupReady,
    TrialDone,
    Warned,
)
from ringroad_lab.run.interface import Samples, Setup, SetupFactory
from ringroad_lab.scenario.model import Scenario
from ringroad_lab.scenario.plan import TRIAL_OVERHEAD_S, make_method, measuring_s
from ringroad_lab.scenario.schedule import Round, ScheduledMeasurement
from ringroad_lab.trial import Load, TrialRequest, TrialResult

_STARTS_TRIED = 3


class NoGenerator(Generator):
    """The generator of measurements whose stations make their own traffic: it refuses trials."""

    def trial(self, request: TrialRequest) -> TrialResult:
        """Refuse the trial."""
        raise GeneratorError("between stations there is no generator")

    def version(self) -> str:
        """Return an empty text: there is no generator."""
        return ""


class AskingGenerator(WrappedGenerator):
    """A generator that asks for permission before each trial."""

    def __init__(self, generator: Generator, ask: Callable[[], None]) -> None:
        """Take `ask`, which returns when the trial is allowed to start, or raises."""
        super().__init__(generator)
        self._ask = ask

    def trial(self, request: TrialRequest) -> TrialResult:
        """Ask for permission, and offer the load."""
        self._ask()
        return self._generator.trial(request)


class FailedStarts:
    """Counts starts of a device that failed one after the other in the same way."""

    def __init__(self) -> None:
        """Start without failures."""
        self._way = ""
        self._count = 0
        self._last = ""

    def add(self, error: LabError) -> None:
        """Count a failure."""
        way = _way(error)
        self._count = self._count + 1 if way == self._way else 1
        self._way, self._last = way, str(error)

    @property
    def why_given_up(self) -> str | None:
        """Why another start would fail, too; None if it may succeed."""
        return f"{GIVEN_UP}{self._count} starts failed in the same way, the last so: {self._last}" if self._count >= _STARTS_TRIED else None


def _way(error: LabError) -> str:
    """Return what failures in the same way have in common: not numbers, paths and other names, nor what a program printed."""
    parts = str(error).partition("\n")[0].split(": ")[:2]
    return " ".join([type(error).__name__, *(word if word.isalpha() else "#" for part in parts for word in part.split())])


class ScheduleRunner:
    """Carries out a schedule of measurements."""

    def __init__(
        self,
        rounds: Sequence[Round],
        setups: SetupFactory,
        emit: Callable[[Event], None],
        is_stopped: Callable[[], bool],
        ask: Callable[[], None] | None = None,
    ) -> None:
        """Take the schedule, the factories of methods and test setups, the callback for events, and the check for a stop request.

        If given, `ask` is called before each trial, and returns when the trial is allowed to start.
        """
        self._rounds = rounds
        self._setups = setups
        self._emit = emit
        self._is_stopped = is_stopped
        self._ask = ask
        self._failed_starts: dict[tuple[str, str, bool], FailedStarts] = {}
        """By device and what it is started for."""
        self._given_up: set[FailedStarts] = set()
        """Those of which `DeviceGivenUp` was emitted."""

    def run(self, measured: frozenset[int] = frozenset()) -> None:
        """Make all measurements that are missing.

        A device that does not start, or dies, makes its measurements invalid, with the reason; the other measurements continue. If it
        fails to start in the same way again and again, it is not started any more.

        Raises:
            RunStoppedError: the user stopped the run.
        """
        for planned in self._rounds:
            todo = [each for each in planned.measurements if each.number not in measured]
            while todo:
                todo = self._run_round(planned, todo)

    def _run_round(self, planned: Round, todo: list[ScheduledMeasurement]) -> list[ScheduledMeasurement]:
        """Measure as much of a round as one start of the device allows; return the remaining measurements."""
        self._stop_if_requested()
        begun_at = time.time()
        start = (planned.dut.label, planned.scenario.topology.value, todo[0].is_between_stations)
        failed_starts = self._failed_starts.setdefault(start, FailedStarts())
        if reason := failed_starts.why_given_up:
            if failed_starts not in self._given_up:
                self._given_up.add(failed_starts)
                self._emit(DeviceGivenUp(dut=planned.dut.label, reason=reason))
            return self._end_unmeasured(planned, todo, begun_at, reason)
        done = 0
        throughputs_fps: dict[str, float] = {}
        try:
            if todo[0].is_between_stations:
                self._run_between_stations(planned, todo[0])
                del self._failed_starts[start]
                return todo[1:]
            with self._setups.make(planned.scenario, planned.dut) as (setup, samples):
                del self._failed_starts[start]
                self._emit(SetupReady(dut=setup.record(), repetition=planned.repetition, generator_version=setup.generator_version()))
                try:
                    while done < len(todo) and not todo[done].is_between_stations:
                        whens = {"before", "after"} | ({"start"} if not done else set()) | ({"end"} if done + 1 == len(todo) else set())
                        is_alive = self._measure(setup, planned, todo[done], throughputs_fps, whens)
                        done += 1
                        if not is_alive:
                            break
                finally:
                    self._end_setup(planned, samples)
        except RunStoppedError:
            raise
        except (DutError, GuestError, GeneratorError, HostError, SandboxError) as error:
            if done:
                # The measurements are reported already; only the setup was not taken down properly.
                self._emit(Warned(text=f"{planned.dut.label}: {error}"))
                return todo[done:]
            failed_starts.add(error)
            return self._end_unmeasured(planned, todo, begun_at, str(error))
        return todo[done:]

    def _end_unmeasured(self, planned: Round, todo: list[ScheduledMeasurement], begun_at: float, reason: str) -> list[ScheduledMeasurement]:
        """End the measurements that need what did not start; return the others. A measurement between stations fails alone."""
        failed = todo[:1] if todo[0].is_between_stations else [each for each in todo if not each.is_between_stations]
        for each in failed:
            self._end_measurement(planned, each, begun_at, _invalid(reason), (), {})
        return [each for each in todo if each not in failed]

    def _run_between_stations(self, planned: Round, measurement: ScheduledMeasurement) -> None:
        """Make one measurement that needs no setup."""
        method = make_method(measurement.method)
        begun_at = time.time()
        with self._setups.make_stations(planned.scenario, planned.dut, method.settings) as (stations, samples):
            self._emit(SetupReady(dut=stations.record(), repetition=planned.repetition))
            self._begin_measurement(planned, measurement, method)
            context = MethodContext(
                generator=NoGenerator(),
                frame=measurement.frame,
                max_fps=0.0,
                is_max_generator_bound=False,
                bidirectional=False,
                flows=1,
                on_trial=lambda _trial: None,
                remaining_s=lambda rest: self._emit(RemainingKnown(number=measurement.number, remaining_s=max(0.0, rest))),
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
            self._end_measurement(planned, measurement, begun_at, outcome, (), counters)
            self._end_setup(planned, samples)

    def _end_setup(self, planned: Round, samples: Samples) -> None:
        for warning in samples.warnings():
            self._emit(Warned(text=f"{planned.dut.label}: {warning}"))
        self._emit(SetupEnded(series=tuple(samples.series()), logs=tuple(samples.logs())))

    def _begin_measurement(
        self, planned: Round, measurement: ScheduledMeasurement, method: Method, *, knows_throughput: bool = False
    ) -> None:
        self._emit(
            MeasurementBegan(
                number=measurement.number,
                dut=planned.dut.label,
                method=measurement.method.name,
                frame=measurement.frame.name,
                repetition=planned.repetition,
                expected_s=measuring_s(method, TRIAL_OVERHEAD_S, knows_throughput=knows_throughput),
            )
        )

    def _measure(
        self, setup: Setup, planned: Round, measurement: ScheduledMeasurement, throughputs_fps: dict[str, float], whens: set[str]
    ) -> bool:
        """Make one measurement, with test steps of `whens` around it; return whether the setup is still usable.

        The throughput is kept by frame size for the methods that follow.
        """
        self._stop_if_requested()
        method = make_method(measurement.method)
        trials: list[TrialResult] = []

        def on_trial(trial: TrialResult) -> None:
            trials.append(trial)
            self._emit(
                TrialDone(
                    number=measurement.number,
                    purpose=trial.request.purpose,
                    rate_fps=trial.request.load.rate_fps,
                    verdict=trial.verdict,
                    loss_ratio=trial.loss_ratio,
                    is_disturbed=trial.is_disturbed,
                )
            )
            self._stop_if_requested()

        self._begin_measurement(planned, measurement, method, knows_throughput=measurement.frame.name in throughputs_fps)
        begun_at = time.time()
        is_alive = True
        counters: dict[str, int] = {}
        steps: list[StepRecord] = []

        def run_test_steps(*moments: str) -> None:
            environment = {"DUT": planned.dut.label, "METHOD": measurement.method.name, "FRAME": measurement.frame.name}
            chosen = [each for moment in moments if moment in whens for each in planned.scenario.steps if each.when == moment]
            for each in chosen:
                steps.append(setup.run_test_step(each, {f"RINGROAD_LAB_{name}": value for name, value in environment.items()}))
                if steps[-1].failure:
                    raise StepFailedError(f"test step {each.name or each.run!r} ({each.when}, on {each.on}): {steps[-1].failure}")

        try:
            run_test_steps("start", "before")
            ceiling = setup.ceiling(measurement.frame)
            if ceiling is not None:
                self._emit(CeilingFound(ceiling=ceiling))
            max_fps, is_generator_bound = _max_fps(planned.scenario, measurement.frame, ceiling)
            context = MethodContext(
                generator=AskingGenerator(setup.generator, self._ask_for_trial) if self._ask else setup.generator,
                frame=measurement.frame,
                max_fps=max_fps,
                is_max_generator_bound=is_generator_bound,
                bidirectional=planned.scenario.bidirectional,
                flows=planned.scenario.flows,
                vlans=planned.scenario.vlans,
                vnis=planned.scenario.vnis,
                on_trial=on_trial,
                remaining_s=lambda rest: self._emit(RemainingKnown(number=measurement.number, remaining_s=max(0.0, rest))),
                repeats=DisturbedRepeats(planned.scenario.disturbance),
                throughput_fps=throughputs_fps.get(measurement.frame.name),
                costs=setup.costs,
                install_flows=setup.install_flows,
            )
            outcome = method.measure(context)
            setup.check()
            counters = setup.collect()
            run_test_steps("after", "end")
            is_found = isinstance(method, ThroughputMethod) and method.is_lossless
            if is_found and (found := outcome.metrics.get(outcome.headline)) is not None:
                throughputs_fps[measurement.frame.name] = found.value
        except RunStoppedError:
            raise
        except StepFailedError as error:
            # The device is restarted for the next measurement if a `start` step failed.
            outcome, is_alive = _invalid(str(error)), not any(each.failure and each.when == "start" for each in steps)
        except LabError as error:
            outcome, is_alive = _invalid(_cause(setup, error)), False
        # Sorted by time: of a trial and its repeats, the one that counts is reported last.
        self._end_measurement(
            planned, measurement, begun_at, outcome, tuple(sorted(trials, key=lambda trial: trial.started_at)), counters, tuple(steps)
        )
        return is_alive

    def _end_measurement(
        self,
        planned: Round,
        measurement: ScheduledMeasurement,
        begun_at: float,
        outcome: Outcome,
        trials: tuple[TrialResult, ...],
        counters: dict[str, int],
        steps: tuple[StepRecord, ...] = (),
    ) -> None:
        tally = tally_disturbances((*trials, *outcome.parts))
        if tally.left and outcome.metrics:
            status = MeasurementStatus.DISTURBED if outcome.status is MeasurementStatus.OK else outcome.status
            outcome = outcome.model_copy(update={"status": status, "reasons": (*outcome.reasons, tally.describe())})
        done = Measurement(
            number=measurement.number,
            dut=planned.dut.label,
            topology=planned.scenario.topology.value,
            method=measurement.method.name,
            frame=measurement.frame,
            repetition=planned.repetition,
            is_noise_floor=planned.is_noise_floor,
            started_at=begun_at,
            elapsed_s=max(0.0, time.time() - begun_at),
            outcome=outcome,
            trials=trials,
            dut_counters=counters,
            steps=steps,
        )
        self._emit(MeasurementDone(measurement=done))

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


def _cause(setup: Setup, error: LabError) -> str:
    """Return why a measurement failed: a dead device is the cause of a generator's error."""
    try:
        setup.check()
    except LabError as death:
        return str(death)
    return str(error)
