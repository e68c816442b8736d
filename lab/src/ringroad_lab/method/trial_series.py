"""The trials of one measurement: each is recorded and judged, and an invalid or disturbed one is repeated."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from ringroad_lab.method.interface import Method, MethodContext, MethodSettings
from ringroad_lab.method.judge import JudgedTrial, Judgement, judge
from ringroad_lab.record import MeasurementStatus, Metric, Outcome
from ringroad_lab.trial import DirectionCounts, Load, Seconds, TrialRequest

# Enough frames that a device that forwards anything lets one through, and so few that none is overloaded.
_ALIVE_FPS = 1_000.0
_ALIVE_S = 0.1
# One that was just overloaded may need a moment: a trial takes about half a second.
_ALIVE_TRIALS = 5
# Of one trial that others disturb: a load that fails in any case must not spend the budget of the whole measurement.
MOST_REPEATS = 3


NO_WAITS = (
    "There is no wait between learning frames, trials and each other: a trial ends when no frame has arrived for 0.1 s "
    "(RFC 2544 section 23: 2 s after learning and after the load, 5 s before the next trial)."
)


class TrialSettings(MethodSettings):
    """What every method's trials have in common."""

    invalid_repeats: Annotated[int, Field(ge=0, le=20)] = 2
    """How often a trial that the generator could not carry is repeated before its load counts as one that it cannot carry."""


class WarmUpSettings(TrialSettings):
    """Of methods that begin with a trial of their own, rather than with the search for the throughput."""

    warm_up_s: Seconds = 1.0
    """Length of a first trial, which is thrown away: caches, tables and clocks are warm after it; 0: none. Practice, in no RFC."""

    def expected_warm_up_s(self, trial_overhead_s: float) -> float:
        """Return how long the first trial is expected to take, s."""
        return self.warm_up_s + trial_overhead_s if self.warm_up_s else 0.0


class NoFigureError(Exception):
    """The trials came to no figure; ends the measurement, not the run."""

    def __init__(self, status: MeasurementStatus, reason: str) -> None:
        """Take what becomes the outcome's status and reason."""
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True)
class _Run:
    """A trial that was run, before it is told."""

    judged: JudgedTrial
    is_disturbed: bool
    lost_time_ratio: float
    """Part of a processor's time that others took."""


@dataclass(frozen=True)
class _Asked:
    """A trial as a method asks for it."""

    rate_fps: float
    duration_s: float
    acceptable_loss_ratio: float
    load: dict[str, Any] = field(default_factory=dict)
    loss_alone_counts: bool = True
    may_repeat: bool = True


class TrialSeries:
    """Trials of one measurement."""

    def __init__(self, context: MethodContext, invalid_repeats: int) -> None:
        """Begin with none."""
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
        """Run a trial; again where it says nothing, where others disturbed it, or where it lost and the loss is to be verified.

        Args:
            rate_fps: Offered load of each direction.
            duration_s: How long.
            purpose: What the trial is for.
            acceptable_loss_ratio: What passes.
            loss_repeats: How often a trial with too much loss is repeated before it counts (ETSI GS NFV-TST 009, binary search with
                loss verification).
            may_be_silent: That nothing arrives, in a direction or in both, is an answer, not a sign of a dead device.
            loss_alone_counts: One that passes tells as much disturbed as undisturbed: others can only add loss.
            may_repeat: The same trial again asks the same; not so where the device remembers, or time matters.
            load: Other fields of the load.

        Raises:
            NoFigureError: the device forwards nothing in a direction any more, at no load.
            GeneratorError: the generator failed.
        """
        asked = _Asked(rate_fps, duration_s, acceptable_loss_ratio, load, loss_alone_counts, may_repeat)
        judged = self._run_carried(asked, purpose, is_verified=loss_repeats > 0)
        for left in reversed(range(loss_repeats)):
            if judged.judgement is not Judgement.FAIL:
                break
            again = self._run_carried(asked, "verification", is_verified=left > 0)
            # One that says nothing does not undo what was seen.
            judged = again if again.counts else judged
        if judged.judgement is Judgement.FAIL and not may_be_silent and _dead_directions(judged):
            self.check_alive()
        return judged

    def warm_up(self, rate_fps: float, duration_s: float) -> None:
        """Run a trial that is recorded and otherwise thrown away."""
        if duration_s:
            self._report(self._trial(_Asked(rate_fps, duration_s, acceptable_loss_ratio=1.0), "warm-up"), is_repeated=False)

    def check_alive(self) -> None:
        """Look whether the device forwards anything at all in each direction, at a load that none fails at.

        Raises:
            NoFigureError: it does not.
        """
        rate_fps = min(_ALIVE_FPS, self.context.max_fps)
        dead: list[DirectionCounts] = []
        for _ in range(_ALIVE_TRIALS):
            judged = self._run_carried(_Asked(rate_fps, max(_ALIVE_S, 1 / rate_fps), acceptable_loss_ratio=1.0), "alive")
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
        """Return metrics of what arrived oddly in all the trials, where anything did."""
        counts = {"duplicate_frames": self.duplicate_frames, "reordered_frames": self.reordered_frames}
        return {name: Metric(value=count, unit="frames") for name, count in counts.items() if count}

    def _run_carried(self, asked: _Asked, purpose: str, *, is_verified: bool = False) -> JudgedTrial:
        judged = self._run_calm(asked, purpose, is_verified=is_verified)
        for _ in range(self._invalid_repeats):
            if judged.counts:
                break
            judged = self._run_calm(asked, purpose, is_verified=is_verified)
        return judged

    def _run_calm(self, asked: _Asked, purpose: str, *, is_verified: bool) -> JudgedTrial:
        """Run a trial; again at once where others disturbed it, as far as the budget goes. The least disturbed one counts."""
        kept = self._trial(asked, purpose)
        for _ in range(MOST_REPEATS):
            if not kept.is_disturbed or not asked.may_repeat or not self.context.repeats.take(asked.duration_s):
                break
            again = self._trial(asked, purpose)
            is_calmer = not again.is_disturbed or again.lost_time_ratio < kept.lost_time_ratio
            kept, left_out = (again, kept) if is_calmer else (kept, again)
            self._report(left_out, is_repeated=True)
        # A loss that is verified is repeated in any case, and only the last word counts.
        self._report(kept, is_repeated=kept.is_disturbed and is_verified and kept.judged.judgement is Judgement.FAIL)
        return kept.judged

    def _trial(self, asked: _Asked, purpose: str) -> _Run:
        context = self.context
        fields = {
            "bidirectional": context.bidirectional,
            "flows": context.flows,
            "vlans": context.vlans,
            "vnis": context.vnis,
            **context.load,
            **asked.load,
        }
        request = TrialRequest(
            load=Load(frame=context.frame, rate_fps=asked.rate_fps, **fields), duration_s=asked.duration_s, purpose=purpose
        )
        judged = judge(context.generator.trial(request), asked.acceptable_loss_ratio)
        seen = judged.result.disturbance
        is_disturbed = seen is not None and seen.is_above_limit and not (asked.loss_alone_counts and judged.passes)
        return _Run(judged, is_disturbed, seen.ratio if seen else 0.0)

    def _report(self, run: _Run, *, is_repeated: bool) -> None:
        result = run.judged.result.model_copy(update={"is_disturbed": run.is_disturbed, "is_repeated": is_repeated})
        self.duplicate_frames += sum(direction.duplicate_frames for direction in result.directions)
        self.reordered_frames += sum(direction.reordered_frames for direction in result.directions)
        self.context.on_trial(result)


class TrialMethod(Method):
    """A method made of a series of trials."""

    settings: TrialSettings

    @abstractmethod
    def evaluate(self, series: TrialSeries) -> Outcome:
        """Run the trials and make an outcome of them.

        Raises:
            NoFigureError: there is none.
            GeneratorError: the generator failed.
        """

    def measure(self, context: MethodContext) -> Outcome:
        """Measure one frame size; where there is no figure, the outcome says why."""
        if context.max_fps < 1:
            reason = f"the greatest load is {context.max_fps:g} frames/s: less than one frame a second cannot be offered"
            return Outcome(status=MeasurementStatus.INVALID, reasons=(reason,))
        try:
            return self.evaluate(TrialSeries(context, self.settings.invalid_repeats))
        except NoFigureError as error:
            return Outcome(status=error.status, reasons=(error.reason,))


def _dead_directions(judged: JudgedTrial) -> list[DirectionCounts]:
    return [direction for direction in judged.result.directions if not direction.received_frames]
