"""A long run below the throughput: times of unexpected loss (ETSI GS NFV-TST 009, long runs)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ringroad_lab.method.throughput import ThroughputSettings, throughput_of
from ringroad_lab.method.trial_series import NoFigureError, TrialMethod, TrialSeries, TrialSettings
from ringroad_lab.record import Better, Curve, MeasurementStatus, Metric, Outcome


class SoakSettings(TrialSettings):
    """Settings of the soak method."""

    load_ratio: Annotated[float, Field(gt=0, le=1)] = 0.9
    """The load, as part of the throughput."""
    duration_s: Annotated[float, Field(gt=0, le=7 * 86_400)] = 1800.0
    """Total duration; CSIT soaks for 30 minutes."""
    trial_s: Annotated[float, Field(gt=0, le=3600)] = 5.0
    """Length of each trial of the soak: the time resolution of a loss."""
    throughput: ThroughputSettings = ThroughputSettings()
    """Search for the throughput if it is not known."""


class SoakMethod(TrialMethod):
    """A soak: consecutive trials at one load."""

    title = "Soak (long run, ETSI GS NFV-TST 009)"
    settings_type = SoakSettings
    settings: SoakSettings

    def expected_s(self, trial_overhead_s: float) -> float:
        """See [`Method.expected_s`]; for an unknown throughput."""
        settings = self.settings
        return settings.throughput.expected_s(trial_overhead_s) + _trials(settings) * (settings.trial_s + trial_overhead_s)

    def deviations(self) -> tuple[str, ...]:
        """See [`Method.deviations`]."""
        return (
            "The soak consists of trials with pauses in between; nothing is sent in a pause.",
            *self.settings.throughput.deviations(),
        )

    def evaluate(self, series: TrialSeries) -> Outcome:
        """Keep up the load and record the loss of each trial."""
        settings, context = self.settings, series.context
        rate_fps = settings.load_ratio * throughput_of(series, settings.throughput)
        began_at: float | None = None
        points: list[tuple[float, float]] = []
        sent = lost = not_carried = 0
        reasons: tuple[str, ...] = ()
        trials = _trials(settings)
        for number in range(trials):
            context.remaining_s((trials - number) * settings.trial_s)
            judged = series.run(rate_fps, settings.trial_s, "soak", may_repeat=False)
            if not judged.counts:
                not_carried, reasons = not_carried + 1, judged.reasons
                continue
            began_at = judged.result.started_at if began_at is None else began_at
            points.append((judged.result.started_at - began_at, judged.result.device_lost_frames))
            sent += judged.result.sent_frames
            lost += judged.result.device_lost_frames
        if not points:
            raise NoFigureError(MeasurementStatus.INVALID, f"the generator could not carry {rate_fps:.0f} frames/s: {'; '.join(reasons)}")
        reason = f"the generator could not carry {not_carried} of {trials} trials: {'; '.join(reasons)}"
        return Outcome(
            status=MeasurementStatus.INCONCLUSIVE if not_carried else MeasurementStatus.OK,
            reasons=(reason,) if not_carried else (),
            headline="soak_loss_ratio",
            metrics={
                "soak_loss_ratio": Metric(value=lost / sent, unit="ratio", better=Better.LOWER),
                "soak_lost_frames": Metric(value=lost, unit="frames", better=Better.LOWER),
                "soak_loss_events": Metric(value=sum(1 for _, frames in points if frames), unit="trials", better=Better.LOWER),
                "soak_trials": Metric(value=len(points), unit="trials"),
                "soak_fps": Metric(value=rate_fps, unit="frames/s"),
            }
            | series.counters(),
            curves=(Curve(name="loss over time", x_name="time", x_unit="s", y_name="lost frames", y_unit="frames", points=tuple(points)),),
        )


def _trials(settings: SoakSettings) -> int:
    return max(1, round(settings.duration_s / settings.trial_s))
