"""RFC 2544 section 26.2: latency at the throughput, at configured parts of it, and without load."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import Annotated

from pydantic import Field

from ringroad_lab.method.throughput import ThroughputSettings, throughput_of
from ringroad_lab.method.trial_series import NoFigureError, TrialMethod, TrialSeries, TrialSettings
from ringroad_lab.record import Better, Curve, MeasurementStatus, Metric, Outcome
from ringroad_lab.trial import FramesPerSecond, LatencySummary, TrialResult

RFC2544_TRIAL_S = 120.0
RFC2544_REPEATS = 20
_COARSE_PRECISION = 0.05

LoadRatio = Annotated[float, Field(gt=0, le=1)]


class LatencySettings(TrialSettings):
    """Settings of the latency method."""

    load_ratios: tuple[LoadRatio, ...] = Field(default=(1.0, 0.9, 0.5, 0.1), min_length=1)
    """Loads, as parts of the throughput. RFC 2544: 1.0; CSIT uses 0.9, 0.5 and 0.1 of its partial drop rate."""
    repeats: Annotated[int, Field(ge=1, le=1000)] = 3
    """Trials at each load; the result is their mean. RFC 2544: at least 20."""
    trial_s: Annotated[float, Field(gt=0, le=3600)] = 2.0
    """Length of a trial. RFC 2544: at least 120 s."""
    unloaded_fps: Annotated[FramesPerSecond, Field(gt=0)] | None = 1000.0
    """Load for the baseline of an otherwise idle device, frames/s; None: no baseline. The baseline is never subtracted."""
    throughput: ThroughputSettings = ThroughputSettings()
    """Search for the throughput if it is not known."""


class LatencyMethod(TrialMethod):
    """RFC 2544 latency, with percentiles if the generator reports them."""

    title = "Latency (RFC 2544 section 26.2)"
    settings_type = LatencySettings
    settings: LatencySettings

    def expected_s(self, trial_overhead_s: float) -> float:
        """See [`Method.expected_s`]; for an unknown throughput."""
        settings = self.settings
        loads = len(settings.load_ratios) + (settings.unloaded_fps is not None)
        trials_s = loads * settings.repeats * (settings.trial_s + trial_overhead_s)
        return settings.throughput.expected_s(trial_overhead_s) + trials_s

    def deviations(self) -> tuple[str, ...]:
        """See [`Method.deviations`]."""
        settings = self.settings
        deviations = ["Latency is measured on all frames of a trial, not on one tagged frame after 60 s (RFC 2544 section 26.2)."]
        if 1.0 not in settings.load_ratios:
            deviations.append("Latency is not measured at the throughput itself (RFC 2544 section 26.2).")
        if settings.repeats < RFC2544_REPEATS:
            deviations.append(f"Latency is the mean of {settings.repeats} trials, not of 20 (RFC 2544 section 26.2).")
        if settings.trial_s < RFC2544_TRIAL_S:
            deviations.append(f"Latency trials last {settings.trial_s:g} s, not 120 s (RFC 2544 section 26.2).")
        return (*deviations, *settings.throughput.deviations())

    def evaluate(self, series: TrialSeries) -> Outcome:
        """Measure at each load, the baseline first."""
        settings = self.settings
        throughput_fps = throughput_of(series, settings.throughput)
        loads = [(load_name(ratio), ratio * throughput_fps) for ratio in settings.load_ratios]
        if settings.unloaded_fps is not None:
            loads.insert(0, ("unloaded", min(settings.unloaded_fps, throughput_fps)))
        metrics: dict[str, Metric] = {"throughput_fps": Metric(value=throughput_fps, unit="frames/s", better=Better.HIGHER)}
        reasons: list[str] = []
        curves: list[Curve] = []
        for name, rate_fps in loads:
            results = self._trials(series, rate_fps, reasons)
            summaries = [summary for result in results if (summary := worst_latency(result)) is not None]
            if not summaries:
                if results:
                    reasons.append(f"no latency at {rate_fps:.0f} frames/s: the generator reported none")
                continue
            metrics |= latency_metrics(name, summaries)
            if points := percentile_points(summaries):
                curves.append(_percentile_curve(name, points))
        headline = f"latency_{loads[-len(settings.load_ratios)][0]}_mean_ns"
        if not any(metric.unit == "ns" for metric in metrics.values()):
            raise NoFigureError(MeasurementStatus.INVALID, "; ".join(reasons))
        return Outcome(
            status=MeasurementStatus.INCONCLUSIVE if reasons else MeasurementStatus.OK,
            reasons=tuple(reasons),
            headline=headline if headline in metrics else "",
            metrics=metrics | series.counters(),
            curves=tuple(curves),
        )

    def _trials(self, series: TrialSeries, rate_fps: float, reasons: list[str]) -> list[TrialResult]:
        """Run the trials of one load and return those that count."""
        settings, results, losses = self.settings, [], 0
        not_carried: list[str] = []
        for _ in range(settings.repeats):
            judged = series.run(
                rate_fps,
                settings.trial_s,
                "latency",
                acceptable_loss_ratio=settings.throughput.acceptable_loss_ratio,
                loss_alone_counts=False,
            )
            if not judged.counts:
                not_carried += judged.reasons
                continue
            losses += not judged.passes
            results.append(judged.result)
        if not_carried:
            why = "; ".join(dict.fromkeys(not_carried))
            reasons.append(f"the generator could not carry {rate_fps:.0f} frames/s with latency: {why}")
        if losses:
            reasons.append(
                f"{losses} of {len(results)} latency trials at {rate_fps:.0f} frames/s lost frames, "
                "although that is not above the throughput"
            )
        coarse = [s.precision for r in results if (s := worst_latency(r)) is not None and (s.precision or 0) > _COARSE_PRECISION]
        if coarse:
            reasons.append(f"percentiles at {rate_fps:.0f} frames/s are only accurate to {max(p or 0 for p in coarse):.0%}")
        return results


def worst_latency(result: TrialResult) -> LatencySummary | None:
    """Return the latency of both directions together: mean over their frames, and the worse of each extreme and percentile."""
    summaries = [direction.latency for direction in result.directions if direction.latency is not None and direction.latency.frames]
    if not summaries:
        return None
    frames = sum(summary.frames for summary in summaries)
    names = set.intersection(*(set(summary.percentiles_ns) for summary in summaries))
    precisions = [summary.precision for summary in summaries if summary.precision is not None]
    return LatencySummary(
        frames=frames,
        min_ns=min(summary.min_ns for summary in summaries),
        mean_ns=sum(summary.mean_ns * summary.frames for summary in summaries) / frames,
        max_ns=max(summary.max_ns for summary in summaries),
        percentiles_ns={name: max(summary.percentiles_ns[name] for summary in summaries) for name in names},
        precision=max(precisions, default=None),
    )


def percentile_points(summaries: Sequence[LatencySummary]) -> list[tuple[float, float]]:
    """Return the median of each percentile that all trials report, without interpolation."""
    names = set.intersection(*(set(summary.percentiles_ns) for summary in summaries))
    return sorted((float(name), median(summary.percentiles_ns[name] for summary in summaries)) for name in names)


def latency_metrics(name: str, summaries: Sequence[LatencySummary]) -> dict[str, Metric]:
    """Return the metrics of one load, `latency_NAME_...`: mean of the trials' means, their extremes, medians of their percentiles."""
    values = {
        "min": min(summary.min_ns for summary in summaries),
        "mean": fmean(summary.mean_ns for summary in summaries),
        "max": max(summary.max_ns for summary in summaries),
    } | {f"p{percentile:g}": value for percentile, value in percentile_points(summaries)}
    return {f"latency_{name}_{what}_ns": Metric(value=value, unit="ns", better=Better.LOWER) for what, value in values.items()}


def load_name(ratio: float) -> str:
    """Return the name of a part of the throughput in metrics: `50pct`."""
    return f"{100 * ratio:g}pct"


def _percentile_curve(name: str, points: list[tuple[float, float]]) -> Curve:
    load = "without load" if name == "unloaded" else f"at {name.removesuffix('pct')} % of throughput"
    return Curve(name=f"latency {load}", x_name="percentile", x_unit="%", y_name="latency", y_unit="ns", points=tuple(points))
