"""The trials of one measurement. Records and judges each trial, and repeats invalid and disturbed trials."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from ringroad_lab.method.interface import Method, MethodContext, MethodSettings
from ringroad_lab.method.judgement import JudgedTrial, Judgement, judge
from ringroad_lab.record import MeasurementStatus, Metric, Outcome
from ringroad_lab.trial import DirectionCounts, Load, Seconds, TrialRequest

# Load of which any working device forwards a frame, and which overloads no device.
_ALIVE_FPS = 1_000.0
_ALIVE_S = 0.1
# A device that was just overloaded may need a moment: a trial takes about half a second.
_ALIVE_TRIALS = 5
# Limit for one disturbed trial: a load that fails in any case must not use up the budget of the whole measurement.
MOST_REPEATS = 3


NO_WAITS = (
    "There are no waits after learning frames and between trials: a trial ends when no frame has arrived for 0.1 s "
    "(RFC 2544 section 23: 2 s after learning and after the load, 5 s before the next trial)."
)


class TrialSettings(MethodSettings):
    """Settings common to the trials of all methods."""

    invalid_repeats: Annotated[int, Field(ge=0, le=20)] = 2
    """Number of times that a trial the generator could not carry is repeated before its load counts as too high for the generator."""


class WarmUpSettings(TrialSettings):
    """Settings of methods that start with their own warm-up trial."""

    warm_up_s: Seconds = 1.0
    """Length of the warm-up trial, which is discarded: it warms up caches, tables and clocks; 0: none. Common practice, not in an RFC."""

    def expected_warm_up_s(self, trial_overhead_s: float) -> float:
        """Return the expected time of the warm-up trial, s."""
        return self.warm_up_s + trial_overhead_s if self.warm_up_s else 0.0


class NoFigureError(Exception):
    """The trials gave no result. Ends the measurement, not the run."""

    def __init__(self, status: MeasurementStatus, reason: str) -> None:
        """Take the status and the reason of the outcome."""
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True)
class _FinishedTrial:
    """A finished trial before it is reported."""

    judged: JudgedTrial
    is_disturbed: bool
    lost_time_ratio: float
    """Part of a processor's time that other processes took."""


@dataclass(frozen=True)
class _Requested:
    """A trial as requested by a method."""

    rate_fps: float
    duration_s: float
    acceptable_loss_ratio: float
    load: dict[str, Any] = field(default_factory=dict)
    loss_alone_counts: bool = True
    may_repeat: bool = True


class TrialSeries:
    """Runs the trials of one measurement."""

    def __init__(self, context: MethodContext, invalid_repeats: int) -> None:
        """Start without trials."""
        self.context = context
        self.duplicate_frames = 0
        self.reordered_frames = 0
        self._invalid_repeats = invalid_repeats

    def run(
        self,
        rate_fps: float,
        duration_s: float,
        purpose: str,
        *,
        acceptable_loss_ratio: float = 0.0,
        loss_repeats: int = 0,
        may_be_silent: bool = False,
        loss_alone_counts: bool = True,
        may_repeat: bool = True,
        **load: Any,  # noqa: ANN401 - fields of a load, which checks them
    ) -> JudgedTrial:
        """Run a trial; repeat it if it shows nothing, if it was disturbed, or if its loss must be verified.

        Args:
            rate_fps: Offered load of each direction.
            duration_s: Duration of the trial.
            purpose: What the trial is for.
            acceptable_loss_ratio: Greatest loss ratio that passes.
            loss_repeats: How often a trial with too much loss is repeated before it counts (ETSI GS NFV-TST 009, binary search with
                loss verification).
            may_be_silent: Whether a trial in which no frame arrives in one or both directions is a valid result, not a sign of a dead
                device.
            loss_alone_counts: Whether a disturbed trial that passes is valid, because disturbances can only add loss.
            may_repeat: Whether a repetition tests the same; not if the device has state, or time matters.
            load: Additional fields of the load.

        Raises:
            NoFigureError: the device no longer forwards anything in a direction, at any load.
            GeneratorError: the generator failed.
        """
        requested = _Requested(rate_fps, duration_s, acceptable_loss_ratio, load, loss_alone_counts, may_repeat)
        judged = self._run_carried(requested, purpose, is_verified=loss_repeats > 0)
        for left in reversed(range(loss_repeats)):
            if judged.judgement is not Judgement.FAIL:
                break
            again = self._run_carried(requested, "verification", is_verified=left > 0)
            # A trial that shows nothing does not revoke the loss.
            judged = again if again.counts else judged
        if judged.judgement is Judgement.FAIL and not may_be_silent and _dead_directions(judged):
            self.check_alive()
        return judged

    def warm_up(self, rate_fps: float, duration_s: float) -> None:
        """Run a trial that is recorded and otherwise discarded."""
        if duration_s:
            self._report(self._trial(_Requested(rate_fps, duration_s, acceptable_loss_ratio=1.0), "warm-up"), is_repeated=False)

    def check_alive(self) -> None:
        """Check that the device forwards anything at all in each direction, at a load that no device fails at.

        Raises:
            NoFigureError: the device does not.
        """
        rate_fps = min(_ALIVE_FPS, self.context.max_fps)
        dead: list[DirectionCounts] = []
        for _ in range(_ALIVE_TRIALS):
            judged = self._run_carried(_Requested(rate_fps, max(_ALIVE_S, 1 / rate_fps), acceptable_loss_ratio=1.0), "alive")
            dead = _dead_directions(judged)
            if not judged.counts or not dead:
                return
        ways = f" from port {' and '.join(f'{way.sender} to {way.receiver}' for way in dead)}"
        where = ways if len(dead) < len(judged.result.directions) else ""
        raise NoFigureError(
            MeasurementStatus.INVALID,
            f"the device forwards nothing{where}, not even at {rate_fps:.0f} frames/s: see its state and its log",
        )

    def counters(self) -> dict[str, Metric]:
        """Return the duplicate and reordered frames of all trials, if there were any."""
        counts = {"duplicate_frames": self.duplicate_frames, "reordered_frames": self.reordered_frames}
        return {name: Metric(value=count, unit="frames") for name, count in counts.items() if count}

    def _run_carried(self, requested: _Requested, purpose: str, *, is_verified: bool = False) -> JudgedTrial:
        judged = self._run_calm(requested, purpose, is_verified=is_verified)
        for _ in range(self._invalid_repeats):
            if judged.counts:
                break
            judged = max(self._run_calm(requested, purpose, is_verified=is_verified), judged, key=_worth)
        return judged

    def _run_calm(self, requested: _Requested, purpose: str, *, is_verified: bool) -> JudgedTrial:
        """Run a trial; repeat it at once if it was disturbed, within the budget. The least disturbed trial counts."""
        kept = self._trial(requested, purpose)
        for _ in range(MOST_REPEATS):
            if not kept.is_disturbed or not requested.may_repeat or not self.context.repeats.take(requested.duration_s):
                break
            again = self._trial(requested, purpose)
            is_calmer = not again.is_disturbed or again.lost_time_ratio < kept.lost_time_ratio
            kept, left_out = (again, kept) if is_calmer else (kept, again)
            self._report(left_out, is_repeated=True)
        # A loss that is verified is repeated in any case, and only the last trial counts.
        self._report(kept, is_repeated=kept.is_disturbed and is_verified and kept.judged.judgement is Judgement.FAIL)
        return kept.judged

    def _trial(self, requested: _Requested, purpose: str) -> _FinishedTrial:
        context = self.context
        fields = {
            "bidirectional": context.bidirectional,
            "flows": context.flows,
            "vlans": context.vlans,
            "vnis": context.vnis,
            **context.load,
            **requested.load,
        }
        request = TrialRequest(
            load=Load(frame=context.frame, rate_fps=requested.rate_fps, **fields), duration_s=requested.duration_s, purpose=purpose
        )
        judged = judge(context.generator.trial(request), requested.acceptable_loss_ratio)
        disturbance = judged.result.disturbance
        is_disturbed = disturbance is not None and disturbance.is_above_limit and not (requested.loss_alone_counts and judged.passes)
        return _FinishedTrial(judged, is_disturbed, disturbance.ratio if disturbance else 0.0)

    def _report(self, run: _FinishedTrial, *, is_repeated: bool) -> None:
        result = run.judged.result.model_copy(update={"is_disturbed": run.is_disturbed, "is_repeated": is_repeated})
        self.duplicate_frames += sum(direction.duplicate_frames for direction in result.directions)
        self.reordered_frames += sum(direction.reordered_frames for direction in result.directions)
        self.context.on_trial(result)


class TrialMethod(Method):
    """A method that runs a series of trials."""

    settings: TrialSettings

    @abstractmethod
    def evaluate(self, series: TrialSeries) -> Outcome:
        """Run the trials and return the outcome.

        Raises:
            NoFigureError: the trials gave no result.
            GeneratorError: the generator failed.
        """

    def measure(self, context: MethodContext) -> Outcome:
        """Measure one frame size; if there is no result, the outcome states why."""
        if context.max_fps < 1:
            reason = f"the greatest load is {context.max_fps:g} frames/s: less than one frame a second cannot be offered"
            return Outcome(status=MeasurementStatus.INVALID, reasons=(reason,))
        try:
            return self.evaluate(TrialSeries(context, self.settings.invalid_repeats))
        except NoFigureError as error:
            return Outcome(status=error.status, reasons=(error.reason,))


def _worth(judged: JudgedTrial) -> tuple[bool, float]:
    """Order trials of one load: a valid one is best. If frames were lost outside the device, it forwarded at least what arrived."""
    return judged.counts, judged.result.forwarded_fps if judged.is_lost_outside else 0.0


def _dead_directions(judged: JudgedTrial) -> list[DirectionCounts]:
    return [direction for direction in judged.result.directions if not direction.received_frames]
