"""The verdict on two sets of samples: regression, improvement, no difference, or inconclusive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from scipy import stats

from ringroad_lab.record import Better
from ringroad_lab.statistics.bootstrap import RatioEstimate, estimate_paired_ratio, estimate_ratio, needed_samples
from ringroad_lab.statistics.verdict import Comparison, Verdict

DEFAULT_CONFIDENCE = 0.95
DEFAULT_MARGIN = 0.02
"""Relative differences up to this do not matter to anyone."""
DEFAULT_PAIRS = 12
"""Pairs that find a difference of 5 % in 9 of 10 cases where single measurements have a standard deviation of up to 2.5 %."""
# Aims a little higher than the 9 of 10 that are promised: the spread of so few samples is itself only known roughly.
_POWER = 0.95
# Ratios of what is smaller or greater are beyond what can be calculated with.
_LEAST_SAMPLE = 1e-30
_GREATEST_SAMPLE = 1e30


def compare(
    baseline: Sequence[float],
    candidate: Sequence[float],
    *,
    better: Better,
    is_paired: bool = False,
    noise_floor: tuple[float, float] | None = None,
    margin: float = DEFAULT_MARGIN,
    confidence: float = DEFAULT_CONFIDENCE,
) -> Comparison:
    """Compare a candidate with a baseline.

    They differ where the interval of their ratio leaves out 1, and the ratio itself lies outside of what the margin and the noise floor
    allow. They do not where the whole interval lies inside of that. Else the samples do not tell.

    Args:
        baseline: Samples, each of a device started anew.
        candidate: The same.
        better: Which way the metric improves.
        is_paired: Sample by sample they were measured one right after the other.
        noise_floor: Interval of the ratio of the same build to itself, where that was measured.
        margin: Relative difference that does not matter.
        confidence: Of the interval.

    Raises:
        ValueError: samples said to be in pairs are not.
    """
    if is_paired and baseline and candidate and len(baseline) != len(candidate):
        raise ValueError(f"{len(baseline)} samples of the baseline and {len(candidate)} of the candidate are no pairs")

    def say(verdict: Verdict, reason: str, estimate: RatioEstimate | None = None, detectable: float | None = None) -> Comparison:
        return Comparison(
            baseline=tuple(baseline),
            candidate=tuple(candidate),
            better=better,
            ratio=estimate.ratio if estimate else _plain_ratio(baseline, candidate),
            interval=estimate.interval if estimate else None,
            confidence=confidence,
            smallest_detectable=detectable,
            verdict=verdict,
            reason=reason,
        )

    samples = [*baseline, *candidate]
    if not baseline or not candidate:
        sides = [name for name, side in (("baseline", baseline), ("candidate", candidate)) if not side]
        return say(Verdict.INVALID, f"no valid figure of the {' and the '.join(sides)}")
    if not all(sample == 0 or _LEAST_SAMPLE <= sample <= _GREATEST_SAMPLE for sample in samples):
        return say(Verdict.INVALID, "a sample is negative, or no number that was measured")
    needed, fewest = needed_samples(confidence), min(len(baseline), len(candidate))
    if fewest < needed:
        sentence = f"{fewest} samples; an interval of {100 * confidence:g} % needs {needed}, finding 5 % needs {DEFAULT_PAIRS}"
        return say(Verdict.INCONCLUSIVE, sentence)
    if not all(samples):
        if not any(samples):
            return say(Verdict.NO_DIFFERENCE, "all samples are 0")
        return say(Verdict.INCONCLUSIVE, "some samples are 0, which have no ratio")
    estimate = (estimate_paired_ratio if is_paired else estimate_ratio)(baseline, candidate, confidence)
    band = _allowed(noise_floor, margin)
    verdict, reason = _judge(estimate, band, better)
    return say(verdict, reason, estimate, _smallest_detectable(estimate, band))


def _plain_ratio(baseline: Sequence[float], candidate: Sequence[float]) -> float | None:
    if not baseline or not candidate or not median(baseline):
        return None
    ratio = median(candidate) / median(baseline)
    return ratio if math.isfinite(ratio) else None


def _allowed(noise_floor: tuple[float, float] | None, margin: float) -> tuple[float, float]:
    """Return the ratios that are no difference."""
    low, high = noise_floor or (1.0, 1.0)
    return min(low, 1 / (1 + margin)), max(high, 1 + margin)


def _judge(estimate: RatioEstimate, band: tuple[float, float], better: Better) -> tuple[Verdict, str]:
    (low, high), ratio = estimate.interval, estimate.ratio
    leaves_out_one = high < 1 or low > 1
    if leaves_out_one and not band[0] <= ratio <= band[1]:
        if better is Better.NEITHER:
            return Verdict.INCONCLUSIVE, "it differs, and neither way is better"
        is_better = (ratio > 1) is (better is Better.HIGHER)
        return Verdict.IMPROVEMENT if is_better else Verdict.REGRESSION, ""
    if band[0] <= low and high <= band[1]:
        return Verdict.NO_DIFFERENCE, ""
    allowed = f"what noise floor and margin allow, {band[0]:.3f} to {band[1]:.3f}"
    if leaves_out_one:
        return Verdict.INCONCLUSIVE, f"there is a difference, but it may be within {allowed}"
    return Verdict.INCONCLUSIVE, f"the interval holds 1 and reaches beyond {allowed}: more samples are needed"


def _smallest_detectable(estimate: RatioEstimate, band: tuple[float, float]) -> float:
    """Return the relative difference that about 9 of 10 such comparisons would have shown."""
    low, high = estimate.interval
    half_width = math.log(high / low) / 2
    threshold = max(half_width, -math.log(band[0]), math.log(band[1]))
    return math.expm1(threshold + float(stats.t.ppf(_POWER, estimate.freedom)) * estimate.deviation)
