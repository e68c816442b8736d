"""RFC 2544 section 26.1: the greatest rate at which the device loses no frame, or no more than is acceptable."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from ringroad_lab.method.directions import direction_metrics
from ringroad_lab.method.judgement import JudgedTrial, Judgement
from ringroad_lab.method.search import Bracket, SearchGrid, search_greatest, validate
from ringroad_lab.method.trial_series import NO_WAITS, NoFigureError, TrialMethod, TrialSeries, WarmUpSettings
from ringroad_lab.record import Better, MeasurementStatus, Metric, Outcome
from ringroad_lab.trial import TrialResult

RFC2544_TRIAL_S = 60.0


class ThroughputSettings(WarmUpSettings):
    """Settings of the throughput search."""

    search_s: Annotated[float, Field(gt=0, le=3600)] = 1.0
    """Length of a search trial. RFC 2544 section 24 allows shorter trials in the search; CSIT uses 1 s."""
    validation_s: Annotated[float, Field(gt=0, le=86_400)] = 5.0
    """Length of the last trial, at the rate found. RFC 2544 section 24: at least 60 s."""
    acceptable_loss_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Part of the frames that may be lost. RFC 2544: none."""
    start_ratio: Annotated[float, Field(gt=0, le=1)] = 1.0
    """First rate, as part of the greatest."""
    minimum_ratio: Annotated[float, Field(gt=0, le=1)] = 0.001
    """Lowest rate, as part of the greatest; at least one frame per search trial. If the device fails at this rate, there is no result."""
    resolution: Annotated[float, Field(ge=0.0001, le=0.5)] = 0.01
    """Maximum distance between the greatest rate that passes and the least that fails, as part of the latter."""
    loss_repeats: Annotated[int, Field(ge=0, le=20)] = 1
    """Times that a trial with loss is repeated before it counts (ETSI GS NFV-TST 009). RFC 2544: 0; then one bad trial decides."""

    def expected_s(self, trial_overhead_s: float) -> float:
        """Return the expected time of a search, s."""
        # The greatest rate, then halvings down to the resolution at a sixth of it; three of four fail and are repeated.
        probes = (1 + math.log2(6 / self.resolution)) * (1 + 0.75 * self.loss_repeats)
        # A rate that passes a short trial mostly fails a longer one: about three trials fail and are repeated before one passes.
        validations = 1 + 3 * (1 + self.loss_repeats)
        return (
            self.expected_warm_up_s(trial_overhead_s)
            + probes * (self.search_s + trial_overhead_s)
            + validations * (self.validation_s + trial_overhead_s)
        )

    def deviations(self) -> tuple[str, ...]:
        """Return how a search with these settings deviates from RFC 2544."""
        deviations = [NO_WAITS]
        if self.validation_s < RFC2544_TRIAL_S:
            deviations.append(f"The throughput's last trial lasts {self.validation_s:g} s, not 60 s (RFC 2544 section 24).")
        if self.acceptable_loss_ratio:
            deviations.append(f"The throughput allows a loss ratio of {self.acceptable_loss_ratio:g}, not 0 (RFC 2544 section 26.1).")
        if self.loss_repeats:
            deviations.append(
                f"A trial with loss counts only when {self.loss_repeats} more confirm it (ETSI GS NFV-TST 009); RFC 2544 counts the first."
            )
        return tuple(deviations)


@dataclass(frozen=True)
class Throughput:
    """Result of a throughput search."""

    throughput_fps: float
    bracket: Bracket
    trial: TrialResult
    """The last trial that passed at that rate."""
    bound_reason: str
    """Reasons why the device may forward more; empty if the result is the device's own limit."""


def find_throughput(series: TrialSeries, settings: ThroughputSettings) -> Throughput:
    """Search for the throughput.

    Raises:
        NoFigureError: the device or the generator fails at the lowest rate.
        GeneratorError: the generator failed.
    """
    # Generators use whole frames per second, and each trial has at least one frame.
    max_fps = float(int(series.context.max_fps))
    minimum_fps = float(math.ceil(max(max_fps * settings.minimum_ratio, 1 / settings.search_s)))
    grid = SearchGrid(minimum=min(minimum_fps, max_fps), maximum=max_fps, resolution=settings.resolution, step=1.0)

    def probe(rate_fps: float, duration_s: float, purpose: str) -> JudgedTrial:
        judged = series.run(
            rate_fps,
            duration_s,
            purpose,
            acceptable_loss_ratio=settings.acceptable_loss_ratio,
            loss_repeats=settings.loss_repeats,
        )
        if judged.passes:
            passed[rate_fps] = judged.result
        return judged

    passed: dict[float, TrialResult] = {}
    series.warm_up(max_fps * settings.start_ratio, settings.warm_up_s)
    found = search_greatest(lambda rate: probe(rate, settings.search_s, "search"), grid, max_fps * settings.start_ratio)
    bracket = validate(lambda rate: probe(rate, settings.validation_s, "validation"), grid, found)
    if bracket.passed is None:
        raise _no_throughput(bracket, grid.minimum)
    return Throughput(bracket.passed, bracket, passed[bracket.passed], _bound_reason(series, bracket))


def throughput_of(series: TrialSeries, settings: ThroughputSettings) -> float:
    """Return the throughput from the context, frames/s; search for it if the context has none.

    Raises:
        NoFigureError: no throughput was found.
        GeneratorError: the generator failed.
    """
    return series.context.throughput_fps or find_throughput(series, settings).throughput_fps


def _no_throughput(bracket: Bracket, minimum_fps: float) -> NoFigureError:
    refusal = bracket.refusal
    if refusal is not None and refusal.judgement is Judgement.FAIL:
        ratio = refusal.result.loss_ratio
        return NoFigureError(
            MeasurementStatus.INCONCLUSIVE,
            f"the device loses {ratio:.2%} of the frames at the lowest rate, {minimum_fps:.0f} frames/s; lower minimum_ratio to go below",
        )
    why = "; ".join(refusal.reasons) if refusal is not None else ""
    return NoFigureError(MeasurementStatus.INVALID, f"the generator cannot carry even {minimum_fps:.0f} frames/s: {why}")


def _bound_reason(series: TrialSeries, bracket: Bracket) -> str:
    if bracket.refused is None:
        if series.context.is_max_generator_bound:
            return f"the device passes at the generator's ceiling, {series.context.max_fps:.0f} frames/s"
        return ""
    if bracket.refusal is not None and not bracket.refusal.counts:
        return f"the generator cannot carry {bracket.refused:.0f} frames/s: {'; '.join(bracket.refusal.reasons)}"
    return ""


class ThroughputMethod(TrialMethod):
    """RFC 2544 throughput."""

    title = "Throughput (RFC 2544 section 26.1)"
    settings_type = ThroughputSettings
    settings: ThroughputSettings

    @property
    def is_lossless(self) -> bool:
        """Whether other methods can use the result; they cannot use a throughput with loss."""
        return not self.settings.acceptable_loss_ratio

    def expected_s(self, trial_overhead_s: float) -> float:
        """See [`Method.expected_s`]."""
        return self.settings.expected_s(trial_overhead_s)

    def deviations(self) -> tuple[str, ...]:
        """See [`Method.deviations`]."""
        return self.settings.deviations()

    def evaluate(self, series: TrialSeries) -> Outcome:
        """Search; the rate is per direction."""
        found = find_throughput(series, self.settings)
        frame = series.context.frame
        metrics = {
            "throughput_fps": Metric(value=found.throughput_fps, unit="frames/s", better=Better.HIGHER),
            # Bits of frames with their FCS, without preamble and gap.
            "throughput_bps": Metric(value=found.throughput_fps * frame.mean_bytes * 8, unit="bit/s", better=Better.HIGHER),
        }
        if found.bracket.refused is not None:
            metrics["refused_fps"] = Metric(value=found.bracket.refused, unit="frames/s")
        return Outcome(
            status=MeasurementStatus.LOWER_BOUND if found.bound_reason else MeasurementStatus.OK,
            reasons=(found.bound_reason,) if found.bound_reason else (),
            headline="throughput_fps",
            metrics=metrics | direction_metrics("throughput", found.trial) | series.counters(),
        )
