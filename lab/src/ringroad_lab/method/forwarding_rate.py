"""RFC 2889 sections 5.1 and 5.6, with the metrics of RFC 2285: forwarding rate at the greatest load, and maximum forwarding rate."""

from __future__ import annotations

from ringroad_lab.method.directions import direction_metrics
from ringroad_lab.method.frame_loss import LoadStepSettings, load_curve
from ringroad_lab.method.judgement import outside_reason
from ringroad_lab.method.trial_series import NO_WAITS, NoFigureError, TrialMethod, TrialSeries
from ringroad_lab.record import Better, MeasurementStatus, Metric, Outcome
from ringroad_lab.trial import TrialResult

RFC2889_TRIAL_S = 30.0


class ForwardingRateSettings(LoadStepSettings):
    """Settings of the forwarding-rate method. RFC 2889 section 5.1.2 uses trials of 30 s, and allows others."""


class ForwardingRateMethod(TrialMethod):
    """RFC 2889 forwarding rate at maximum offered load (FRMOL) and maximum forwarding rate (MFR)."""

    title = "Forwarding rate (RFC 2889 sections 5.1 and 5.6)"
    settings_type = ForwardingRateSettings
    settings: ForwardingRateSettings

    def expected_s(self, trial_overhead_s: float) -> float:
        """See [`Method.expected_s`]."""
        return self.settings.expected_s(trial_overhead_s)

    def deviations(self) -> tuple[str, ...]:
        """See [`Method.deviations`]."""
        deviations = [NO_WAITS]
        if self.settings.trial_s < RFC2889_TRIAL_S:
            deviations.append(f"Trials of the forwarding rate last {self.settings.trial_s:g} s, not 30 s (RFC 2889 section 5.1.2).")
        return tuple(deviations)

    def evaluate(self, series: TrialSeries) -> Outcome:
        """Go down from the greatest load, as long as a lower load could still have a higher forwarding rate."""
        settings, context = self.settings, series.context
        series.warm_up(context.max_fps, settings.warm_up_s)
        points: list[tuple[float, float]] = []
        trials: list[TrialResult] = []
        reasons: list[str] = []
        is_clean_at_max = False
        for ratio in settings.load_ratios():
            rate_fps = ratio * context.max_fps
            if points and rate_fps <= max(rate for _, rate in points):
                break
            judged = series.run(rate_fps, settings.trial_s, "forwarding-rate")
            if not judged.counts and not judged.is_lost_outside:
                reasons.append(f"the generator could not carry {rate_fps:.0f} frames/s: {'; '.join(judged.reasons)}")
                continue
            if judged.is_forwarded_more:
                reasons.append(f"at {rate_fps:.0f} frames/s the device may forward more than arrived: {outside_reason(judged.result)}")
            points.append((rate_fps, judged.result.forwarded_fps))
            trials.append(judged.result)
            is_clean_at_max = is_clean_at_max or (ratio == 1.0 and judged.passes)
        if not points:
            raise NoFigureError(MeasurementStatus.INVALID, reasons[-1])
        metrics = {"mfr_fps": Metric(value=max(rate for _, rate in points), unit="frames/s", better=Better.HIGHER)}
        metrics |= direction_metrics("mfr", max(trials, key=lambda trial: trial.forwarded_fps))
        if points[0][0] == context.max_fps:
            metrics["frmol_fps"] = Metric(value=points[0][1], unit="frames/s", better=Better.HIGHER)
            metrics |= direction_metrics("frmol", trials[0])
        if is_clean_at_max and context.is_max_generator_bound:
            reasons.append(f"the device forwards all frames at the generator's ceiling, {context.max_fps:.0f} frames/s")
        if "frmol_fps" not in metrics:
            status = MeasurementStatus.INCONCLUSIVE
        else:
            status = MeasurementStatus.LOWER_BOUND if reasons else MeasurementStatus.OK
        return Outcome(
            status=status,
            reasons=tuple(reasons),
            headline="frmol_fps" if "frmol_fps" in metrics else "mfr_fps",
            metrics=metrics | series.counters(),
            curves=(load_curve("forwarding rate", "forwarding rate", "frames/s", points),),
        )
