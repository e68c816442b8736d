"""RFC 9971, MLRsearch: one search finds the loads of several loss goals, with the MLRsearch library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Self

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal
from pydantic import Field, field_validator, model_validator

from ringroad_lab.method.judgement import outside_reason
from ringroad_lab.method.trial_series import NO_WAITS, NoFigureError, TrialMethod, TrialSeries, WarmUpSettings
from ringroad_lab.record import Better, MeasurementStatus, Metric, Outcome
from ringroad_lab.trial import Frozen

# Number of times that the ceiling is lowered, to a little less than the generator sent, before the search fails.
_CEILING_ATTEMPTS = 5
_CEILING_MARGIN = 0.99
_CEILING_STEP = 0.9


class LossGoal(Frozen):
    """A search goal of RFC 9971, with CSIT's settings as defaults."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    """Prefix of the goal's metrics."""
    loss_ratio: Annotated[float, Field(ge=0, lt=1)]
    """A trial is good if its loss ratio is not higher."""
    exceed_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Part of the trial time at a load that bad trials may take."""
    relative_width: Annotated[float, Field(ge=0.0005, lt=1)] = 0.005
    """Maximum distance between lower and upper bound, as part of the upper bound."""
    initial_trial_s: Annotated[float, Field(gt=0)] = 1.0
    final_trial_s: Annotated[float, Field(gt=0)] = 1.0
    duration_sum_s: Annotated[float, Field(gt=0)] = 21.0
    """Trial time at a load after which the load is a bound."""

    @model_validator(mode="after")
    def _check_durations(self) -> Self:
        if not self.initial_trial_s <= self.final_trial_s <= self.duration_sum_s:
            raise ValueError(
                f"goal {self.name}: initial_trial_s ({self.initial_trial_s:g}) must not exceed final_trial_s ({self.final_trial_s:g}), "
                f"and final_trial_s must not exceed duration_sum_s ({self.duration_sum_s:g})"
            )
        return self


class MlrSearchSettings(WarmUpSettings):
    """Settings of the mlrsearch method."""

    goals: tuple[LossGoal, ...] = Field(
        default=(LossGoal(name="ndr", loss_ratio=0.0), LossGoal(name="pdr", loss_ratio=0.005)),
        min_length=1,
    )
    """The conditional throughput of the first goal is the headline."""
    minimum_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.001
    """Lowest load, as part of the greatest; at least one frame per trial."""
    max_search_s: Annotated[float, Field(gt=0)] = 1200.0
    """Time limit, after which the search ends without a result."""

    @field_validator("goals")
    @classmethod
    def _check_names(cls, goals: tuple[LossGoal, ...]) -> tuple[LossGoal, ...]:
        if len({goal.name for goal in goals}) < len(goals):
            raise ValueError("two goals have the same name; metrics are named after the goals")
        return goals


@dataclass(frozen=True)
class _NotCarriedError(Exception):
    """The generator could not carry a load."""

    load_fps: float
    carried_fps: float
    reasons: tuple[str, ...]


class _Measurer(AbstractMeasurer):  # type: ignore[misc] # the library has no types
    """Lets the library's search run trials of a series."""

    def __init__(self, series: TrialSeries, greatest_ratio: float) -> None:
        self._series = series
        self._greatest_ratio = greatest_ratio
        """Greatest loss ratio of the goals: a trial with more loss is bad for all goals, at any load."""

    def measure(self, intended_duration: float, intended_load: float) -> MeasurementResult:
        """Run a trial. A trial that shows nothing ends the search, because it must not count as loss."""
        judged = self._series.run(min(intended_load, self._series.context.max_fps), intended_duration, "search")
        result = judged.result
        if not judged.reports_ratio and (not judged.counts or result.device_loss_ratio <= self._greatest_ratio):
            is_offered = judged.counts or judged.is_lost_outside
            carried_fps = min(_CEILING_STEP * intended_load, _CEILING_MARGIN * (result.forwarded_fps if is_offered else result.offered_fps))
            raise _NotCarriedError(intended_load, carried_fps, judged.reasons or (outside_reason(result),))
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=result.sent_frames,
            loss_count=result.device_lost_frames,
            # The judge has checked the duration; tiny differences must not cause another trial.
            offered_duration=intended_duration,
        )


class MlrSearchMethod(TrialMethod):
    """RFC 9971 MLRsearch."""

    title = "MLRsearch: conditional throughput (RFC 9971)"
    settings_type = MlrSearchSettings
    settings: MlrSearchSettings

    def expected_s(self, trial_overhead_s: float) -> float:
        """See [`Method.expected_s`]."""
        settings = self.settings
        # Two bounds of each goal at full duration sum, and about as many trials to reach them.
        trials = sum(4 * goal.duration_sum_s / goal.final_trial_s * max(goal.exceed_ratio, 0.5) + 12 for goal in settings.goals)
        duration_s = max(goal.final_trial_s for goal in settings.goals)
        return min(settings.max_search_s, settings.expected_warm_up_s(trial_overhead_s) + trials * (duration_s + trial_overhead_s))

    def deviations(self) -> tuple[str, ...]:
        """See [`Method.deviations`]."""
        goals = (
            f"Goal {goal.name} allows a loss ratio of {goal.loss_ratio:g}, and more in {goal.exceed_ratio:.0%} of "
            f"{goal.duration_sum_s:g} s of trials of {goal.final_trial_s:g} s each; RFC 2544 has one trial of 60 s without loss."
            for goal in self.settings.goals
            if goal.loss_ratio or goal.exceed_ratio or goal.final_trial_s < 60
        )
        return (NO_WAITS, *goals)

    def evaluate(self, series: TrialSeries) -> Outcome:
        """Search; if the generator cannot carry a load, search again below that load."""
        max_fps, settings = series.context.max_fps, self.settings
        # A trial shorter than one frame's time offers no frame.
        min_fps = max(settings.minimum_ratio * max_fps, 1 / min(goal.initial_trial_s for goal in settings.goals))
        bound_reason = f"the generator's ceiling is {max_fps:.0f} frames/s" if series.context.is_max_generator_bound else ""
        series.warm_up(max_fps, settings.warm_up_s)
        for _ in range(_CEILING_ATTEMPTS):
            if max_fps <= min_fps:
                break
            try:
                found = self._search(series, min_fps, max_fps)
            except _NotCarriedError as error:
                bound_reason = f"the generator could not carry {error.load_fps:.0f} frames/s: {'; '.join(error.reasons)}"
                max_fps = error.carried_fps
            else:
                return self._outcome(series, found, bound_reason)
        why = f"{bound_reason}; " if bound_reason else ""
        raise NoFigureError(MeasurementStatus.INVALID, f"{why}no result from {min_fps:.0f} to {max_fps:.0f} frames/s")

    def _search(self, series: TrialSeries, min_fps: float, max_fps: float) -> list[tuple[LossGoal, Any]]:
        """Return the library's result of each goal."""
        goals = {
            goal: SearchGoal(
                loss_ratio=goal.loss_ratio,
                exceed_ratio=goal.exceed_ratio,
                relative_width=goal.relative_width,
                initial_trial_duration=goal.initial_trial_s,
                final_trial_duration=goal.final_trial_s,
                duration_sum=goal.duration_sum_s,
                fail_fast=False,
            )
            for goal in self.settings.goals
        }
        # The order is the one that the library's checks need.
        config = Config()
        config.goals = list(goals.values())
        config.max_load = max(max_fps, config.min_load * 2)
        config.min_load = min_fps
        config.max_load = max_fps
        config.search_duration_max = self.settings.max_search_s
        config.warmup_duration = 0.0
        measurer = _Measurer(series, max(goal.loss_ratio for goal in goals))
        try:
            results = MultipleLossRatioSearch(config=config).search(measurer=measurer, debug=lambda _: None)
        except RuntimeError as error:
            raise NoFigureError(MeasurementStatus.INCONCLUSIVE, f"MLRsearch did not finish: {error}") from error
        return [(goal, results[library_goal]) for goal, library_goal in goals.items()]

    def _outcome(self, series: TrialSeries, found: list[tuple[LossGoal, Any]], bound_reason: str) -> Outcome:
        metrics: dict[str, Metric] = {}
        reasons: list[str] = []
        status = MeasurementStatus.OK
        for goal, result in found:
            lower, upper = result.relevant_lower_bound, result.relevant_upper_bound
            if lower is None:
                status = MeasurementStatus.INCONCLUSIVE
                reasons.append(f"{goal.name}: the device misses the goal even at the lowest load; lower minimum_ratio to go below")
            else:
                throughput = float(result.conditional_throughput)
                metrics[f"{goal.name}_conditional_throughput_fps"] = Metric(value=throughput, unit="frames/s", better=Better.HIGHER)
                metrics[f"{goal.name}_lower_bound_fps"] = Metric(value=float(lower), unit="frames/s", better=Better.HIGHER)
            if upper is not None:
                metrics[f"{goal.name}_upper_bound_fps"] = Metric(value=float(upper), unit="frames/s")
            elif bound_reason:
                status = MeasurementStatus.LOWER_BOUND if status is MeasurementStatus.OK else status
                reasons.append(f"{goal.name}: the device passes at the greatest load; {bound_reason}")
        headline = f"{found[0][0].name}_conditional_throughput_fps"
        return Outcome(
            status=status,
            reasons=tuple(reasons),
            headline=headline if headline in metrics else "",
            metrics=metrics | series.counters(),
        )
