"""RFC 2544 section 26.5: how soon after an overload the device stops losing frames."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ringroad_lab.method.judgement import JudgedTrial
from ringroad_lab.method.throughput import RFC2544_TRIAL_S, ThroughputSettings, throughput_of
from ringroad_lab.method.trial_series import NoFigureError, TrialMethod, TrialSeries, TrialSettings
from ringroad_lab.record import Better, Curve, MeasurementStatus, Metric, Outcome

RFC2544_OVERLOAD_RATIO = 1.1
RFC2544_RECOVERY_RATIO = 0.5


class RecoverySettings(TrialSettings):
    """Settings of the recovery method."""

    overload_ratio: Annotated[float, Field(gt=1, le=10)] = RFC2544_OVERLOAD_RATIO
    """The overload, as a multiple of the throughput, limited to the greatest load. RFC 2544: 1.1."""
    overload_s: Annotated[float, Field(gt=0, le=3600)] = 5.0
    """Duration of the overload. RFC 2544: at least 60 s."""
    recovery_ratio: Annotated[float, Field(gt=0, lt=1)] = RFC2544_RECOVERY_RATIO
    """The load after the overload, as part of the overload. RFC 2544: half."""
    probe_s: Annotated[float, Field(gt=0, le=60)] = 0.2
    """Length of a trial after the overload. With the time between two trials, it is the resolution of the result."""
    clean_trials: Annotated[int, Field(ge=1, le=10)] = 2
    """Number of consecutive trials without loss after which the device has recovered."""
    max_trials: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Maximum number of trials; after them the device counts as not recovered."""
    throughput: ThroughputSettings = ThroughputSettings()
    """Search for the throughput if it is not known."""


class RecoveryMethod(TrialMethod):
    """RFC 2544 system recovery, measured by consecutive trials."""

    title = "System recovery (RFC 2544 section 26.5)"
    settings_type = RecoverySettings
    settings: RecoverySettings

    def expected_s(self, trial_overhead_s: float) -> float:
        """See [`Method.expected_s`]; for a device that recovers at once."""
        settings = self.settings
        trials_s = settings.overload_s + trial_overhead_s + settings.clean_trials * (settings.probe_s + trial_overhead_s)
        return settings.throughput.expected_s(trial_overhead_s) + trials_s

    def deviations(self) -> tuple[str, ...]:
        """See [`Method.deviations`]."""
        deviations = [
            "Recovery is measured once in each repetition, not averaged over several overloads (RFC 2544 section 26.5).",
            "The load is lowered between two trials, not within one: the time between the trials is part of the recovery time, "
            "which is an upper bound (RFC 2544 section 26.5).",
        ]
        settings = self.settings
        if settings.overload_ratio != RFC2544_OVERLOAD_RATIO:
            deviations.append(f"The overload is {settings.overload_ratio:.0%} of the throughput, not 110 % (RFC 2544 section 26.5).")
        if settings.overload_s < RFC2544_TRIAL_S:
            deviations.append(f"The overload lasts {settings.overload_s:g} s, not 60 s (RFC 2544 section 26.5).")
        if settings.recovery_ratio != RFC2544_RECOVERY_RATIO:
            deviations.append(f"The load after the overload is {settings.recovery_ratio:.0%} of it, not 50 % (RFC 2544 section 26.5).")
        return (*deviations, *settings.throughput.deviations())

    def evaluate(self, series: TrialSeries) -> Outcome:
        """Overload the device, then find the first of the consecutive clean trials."""
        settings, max_fps = self.settings, series.context.max_fps
        overload_fps = min(max_fps, settings.overload_ratio * throughput_of(series, settings.throughput))
        overload = series.run(overload_fps, settings.overload_s, "overload", may_be_silent=True)
        if not overload.counts:
            raise NoFigureError(MeasurementStatus.INVALID, f"the generator could not carry the overload: {'; '.join(overload.reasons)}")
        if overload.passes:
            raise NoFigureError(
                MeasurementStatus.INCONCLUSIVE,
                f"the overload of {overload_fps:.0f} frames/s lost no frame: there is nothing to recover from",
            )
        ended_at = _sending_ended_at(overload)
        points: list[tuple[float, float]] = []
        clean: list[float] = []
        for _ in range(settings.max_trials):
            judged = series.run(settings.recovery_ratio * overload_fps, settings.probe_s, "recovery", may_be_silent=True, may_repeat=False)
            if not judged.counts:
                why = "; ".join(judged.reasons)
                raise NoFigureError(MeasurementStatus.INVALID, f"the generator could not carry the load after the overload: {why}")
            after_s = judged.result.started_at - ended_at
            points.append((after_s, judged.result.device_loss_ratio))
            clean = [*clean, after_s] if judged.passes else []
            if len(clean) == settings.clean_trials:
                break
        else:
            series.check_alive()
            raise NoFigureError(
                MeasurementStatus.INCONCLUSIVE,
                f"{points[-1][0]:.1f} s after the overload the device still loses frames at {settings.recovery_ratio:.0%} of that load",
            )
        return Outcome(
            status=MeasurementStatus.OK,
            headline="recovery_at_most_s",
            metrics={
                "recovery_at_most_s": Metric(value=max(0.0, clean[0]), unit="s", better=Better.LOWER),
                "overload_fps": Metric(value=overload_fps, unit="frames/s"),
                "overload_loss_ratio": Metric(value=overload.result.device_loss_ratio, unit="ratio"),
            }
            | series.counters(),
            curves=(
                Curve(
                    name="recovery",
                    x_name="time after the overload",
                    x_unit="s",
                    y_name="frame loss ratio",
                    y_unit="ratio",
                    points=tuple(points),
                ),
            ),
        )


def _sending_ended_at(judged: JudgedTrial) -> float:
    return judged.result.started_at + max(direction.transmit_s for direction in judged.result.directions)
