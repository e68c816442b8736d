"""The verdict on two sets of samples: regression, improvement, no difference, or inconclusive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import scipy

from ringroad_lab.record import Better
from ringroad_lab.statistics.bootstrap import RatioEstimate, estimate_paired_ratio, estimate_ratio, needed_samples, symmetric
from ringroad_lab.statistics.verdict import DEFAULT_LIMIT, MetricComparison, Verdict

DEFAULT_CONFIDENCE = 0.95
DEFAULT_MARGIN = 0.02
"""Relative differences up to this are irrelevant."""
DEFAULT_PAIRS = 12
"""Pairs that find a difference of 5 % in 9 of 10 cases if single measurements have a standard deviation of up to 2.5 %."""
# A little higher than the documented 9 of 10: the spread of few samples is only roughly known.
_POWER = 0.95
# Ratios of smaller or greater samples can leave the range of floating-point numbers.
_LEAST_SAMPLE = 1e-30
_GREATEST_SAMPLE = 1e30
# A narrower interval is treated as this wide, to avoid a division by 0.
_NARROWEST = 1e-12
# Maximum number of samples that is practical.
_MOST_SAMPLES = 1000


def compare(
    baseline: Sequence[float],
    candidate: Sequence[float],
    *,
    better: Better,
    is_paired: bool = False,
    noise_floor: tuple[float, float] | None = None,
    margin: float = DEFAULT_MARGIN,
    limit: float = DEFAULT_LIMIT,
    confidence: float = DEFAULT_CONFIDENCE,
) -> MetricComparison:
    """Compare a candidate with a baseline.

    They differ if the interval of their ratio excludes 1 and the ratio itself exceeds both the margin and the noise floor. They do not
    differ if the whole interval lies within the larger of margin and noise floor, and a difference of the limit would have been detected.
    Otherwise the result is inconclusive. If the sides are exchanged, the ratio is inverted, a regression becomes an improvement, and all
    else stays the same.

    Args:
        baseline: Samples, each from a restarted device.
        candidate: Samples of the candidate, measured in the same way.
        better: Direction in which the metric improves.
        is_paired: Whether the samples are pairs that were measured back to back.
        noise_floor: Interval of the ratio of the same build to itself, if it was measured.
        margin: Irrelevant relative difference.
        limit: Upper limit of the smallest detectable relative difference for a verdict of no difference.
        confidence: Confidence of the interval.

    Raises:
        ValueError: the sides of paired samples differ in number.
    """
    if is_paired and baseline and candidate and len(baseline) != len(candidate):
        raise ValueError(f"{len(baseline)} samples of the baseline and {len(candidate)} of the candidate are not pairs")

    def result(verdict: Verdict, reason: str, estimate: RatioEstimate | None = None, decision: _Decision | None = None) -> MetricComparison:
        return MetricComparison(
            baseline=tuple(baseline),
            candidate=tuple(candidate),
            better=better,
            ratio=estimate.ratio if estimate else _plain_ratio(baseline, candidate),
            interval=estimate.interval if estimate else None,
            confidence=confidence,
            smallest_detectable=decision.smallest_detectable if decision else None,
            more_samples=decision.more_samples if decision else None,
            verdict=verdict,
            reason=reason,
        )

    samples = [*baseline, *candidate]
    if not baseline or not candidate:
        sides = [name for name, side in (("baseline", baseline), ("candidate", candidate)) if not side]
        return result(Verdict.INVALID, f"no valid value for the {' and the '.join(sides)}")
    if not all(sample == 0 or _LEAST_SAMPLE <= sample <= _GREATEST_SAMPLE for sample in samples):
        return result(Verdict.INVALID, "a sample is negative or not a measurable number")
    needed, fewest = needed_samples(confidence), min(len(baseline), len(candidate))
    if fewest < needed:
        sentence = (
            f"{fewest} sample{'s' * (fewest > 1)}; an interval of {100 * confidence:g} % needs {needed}, finding 5 % needs {DEFAULT_PAIRS}"
        )
        return result(Verdict.INCONCLUSIVE, sentence)
    if not all(samples):
        if not any(samples):
            return result(Verdict.NO_DIFFERENCE, "all samples are 0")
        return result(Verdict.INCONCLUSIVE, "some samples are 0, which have no ratio")
    # The calculation uses the same order of the sides, whichever is the baseline.
    is_exchanged = tuple(candidate) < tuple(baseline)
    first, second = (candidate, baseline) if is_exchanged else (baseline, candidate)
    estimate = (estimate_paired_ratio if is_paired else estimate_ratio)(first, second, confidence)
    _, noise = symmetric(noise_floor or (1.0, 1.0))
    decision = _decide(estimate, fewest, max(1 + margin, noise), limit)
    if is_exchanged:
        estimate = estimate.inverse()
    if decision.change is None:
        return result(Verdict.INCONCLUSIVE if decision.reason else Verdict.NO_DIFFERENCE, decision.reason, estimate, decision)
    if better is Better.NEITHER:
        return result(Verdict.INCONCLUSIVE, "there is a difference, but neither direction is better", estimate, decision)
    is_more = (decision.change > 0) is not is_exchanged
    is_better = is_more is (better is Better.HIGHER)
    return result(Verdict.IMPROVEMENT if is_better else Verdict.REGRESSION, "", estimate, decision)


@dataclass(frozen=True)
class _Decision:
    """The meaning of an estimate, independent of the better direction."""

    smallest_detectable: float
    change: float | None = None
    """Logarithm of the ratio if it shows a difference."""
    reason: str = ""
    """Reason why it shows neither a difference nor the absence of one."""
    more_samples: int | None = None


def _plain_ratio(baseline: Sequence[float], candidate: Sequence[float]) -> float | None:
    if not baseline or not candidate or not median(baseline):
        return None
    ratio = median(candidate) / median(baseline)
    return ratio if math.isfinite(ratio) else None


def _decide(estimate: RatioEstimate, samples: int, allowed: float, limit: float) -> _Decision:
    """Judge an estimate from this number of samples of each side; ratios from 1 / `allowed` to `allowed` are no difference."""
    low, high = map(math.log, estimate.interval)
    change, bound, most = math.log(estimate.ratio), math.log(allowed), math.log1p(limit)
    half_width, spread = (high - low) / 2, float(scipy.stats.t.ppf(_POWER, estimate.freedom)) * estimate.deviation
    detectable = max(half_width, bound) + spread
    smallest = math.expm1(detectable)
    leaves_out_one = high < 0 or low > 0
    if leaves_out_one and abs(change) > bound:
        return _Decision(smallest, change=change)
    is_within = -bound <= low and high <= bound
    if is_within and detectable <= most:
        return _Decision(smallest)
    if is_within:
        reason = f"a difference of {100 * smallest:.1f} % could have been missed; the limit is {100 * limit:g} %"
    elif leaves_out_one:
        reason = f"there is a difference, but it may be within the noise floor and margin, {100 * math.expm1(bound):.1f} %"
    else:
        reason = f"the interval contains 1 and exceeds the noise floor and margin, {100 * math.expm1(bound):.1f} %"
    # The interval shrinks with the square root of the number of samples.
    if abs(change) > bound:
        narrower = abs(change) / half_width
    elif bound < most:
        narrower = min((bound - abs(change)) / max(half_width, _NARROWEST), (most - bound) / max(spread, _NARROWEST))
    else:
        return _Decision(smallest, reason=f"{reason}; no number of samples decides it before the test bed's own noise is below the limit")
    more = max(1, math.ceil(samples / max(narrower, _NARROWEST) ** 2) - samples)
    if more > _MOST_SAMPLES:
        return _Decision(smallest, reason=f"{reason}; more than {_MOST_SAMPLES} more samples of each would be needed")
    return _Decision(smallest, reason=f"{reason}; about {more} more samples of each would decide it", more_samples=more)
