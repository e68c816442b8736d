"""RFC 2544 section 26.3: the frame loss ratio at each load, from the greatest load down."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from ringroad_lab.method.judgement import outside_reason
from ringroad_lab.method.throughput import RFC2544_TRIAL_S
from ringroad_lab.method.trial_series import NO_WAITS, NoFigureError, TrialMethod, TrialSeries, WarmUpSettings
from ringroad_lab.record import Better, Curve, MeasurementStatus, Metric, Outcome


class LoadStepSettings(WarmUpSettings):
    """Settings of methods that lower the load in even steps from the greatest."""

    trial_s: Annotated[float, Field(gt=0, le=86_400)] = 2.0
    """Length of a trial."""
    step_ratio: Annotated[float, Field(ge=0.01, le=0.5)] = 0.1
    """Distance between two loads, as part of the greatest load."""

    def load_ratios(self) -> tuple[float, ...]:
        """Return the loads as parts of the greatest load, from the greatest down; never 0."""
        return tuple(1.0 - i * self.step_ratio for i in range(math.ceil(1 / self.step_ratio - 1e-9)))

    def expected_s(self, trial_overhead_s: float) -> float:
        """Return the expected time of all loads, s, for a device that loses frames at every load."""
        return self.expected_warm_up_s(trial_overhead_s) + len(self.load_ratios()) * (self.trial_s + trial_overhead_s)


def load_curve(name: str, y_name: str, y_unit: str, points: Iterable[tuple[float, float]]) -> Curve:
    """Return a curve over the offered load."""
    return Curve(name=name, x_name="offered load", x_unit="frames/s", y_name=y_name, y_unit=y_unit, points=tuple(sorted(points)))


class FrameLossSettings(LoadStepSettings):
    """Settings of the frame-loss method. RFC 2544: trials of at least 60 s (section 24), steps of 10 % or less."""

    clean_trials: Annotated[int, Field(ge=1, le=10)] = 2
    """Number of consecutive loads without loss that end the curve. RFC 2544: two."""


class FrameLossMethod(TrialMethod):
    """RFC 2544 frame loss rate."""

    title = "Frame loss rate (RFC 2544 section 26.3)"
    settings_type = FrameLossSettings
    settings: FrameLossSettings

    def expected_s(self, trial_overhead_s: float) -> float:
        """See [`Method.expected_s`]."""
        return self.settings.expected_s(trial_overhead_s)

    def deviations(self) -> tuple[str, ...]:
        """See [`Method.deviations`]."""
        settings = self.settings
        deviations = [NO_WAITS]
        if settings.trial_s < RFC2544_TRIAL_S:
            deviations.append(f"Trials of the loss curve last {settings.trial_s:g} s, not 60 s (RFC 2544 section 24).")
        if settings.step_ratio > 0.1:
            deviations.append(
                f"Loads of the loss curve are {settings.step_ratio:.0%} of the greatest load apart, not 10 % (RFC 2544 section 26.3)."
            )
        if settings.clean_trials < 2:
            deviations.append("The loss curve ends at the first load without loss, not after two (RFC 2544 section 26.3).")
        return tuple(deviations)

    def evaluate(self, series: TrialSeries) -> Outcome:
        """Go down from the greatest load."""
        settings, max_fps = self.settings, series.context.max_fps
        series.warm_up(max_fps, settings.warm_up_s)
        points: list[tuple[float, float]] = []
        not_carried: list[str] = []
        clean = 0
        for ratio in settings.load_ratios():
            judged = series.run(ratio * max_fps, settings.trial_s, "frame-loss")
            if not judged.reports_ratio:
                why = judged.reasons or (outside_reason(judged.result),)
                not_carried.append(f"{ratio * max_fps:.0f} frames/s: {'; '.join(why)}")
                continue
            points.append((ratio * max_fps, judged.result.device_loss_ratio))
            clean = clean + 1 if judged.passes else 0
            if clean == settings.clean_trials:
                break
        if not points:
            raise NoFigureError(MeasurementStatus.INVALID, f"the generator could not carry any load: {not_carried[-1]}")
        is_whole = points[0][0] == max_fps
        loss = Metric(value=points[0][1], unit="ratio", better=Better.LOWER)
        return Outcome(
            status=MeasurementStatus.OK if is_whole else MeasurementStatus.INCONCLUSIVE,
            reasons=tuple(f"the generator could not carry {what}" for what in not_carried),
            headline="frame_loss_ratio" if is_whole else "",
            metrics=({"frame_loss_ratio": loss} if is_whole else {}) | series.counters(),
            curves=(load_curve("frame loss", "frame loss ratio", "ratio", points),),
        )
