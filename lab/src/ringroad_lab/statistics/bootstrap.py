"""Bootstrap confidence intervals of a ratio, without an assumed distribution of the samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

Samples = NDArray[np.floating[Any]]

_RESAMPLES = 2_000
# The same samples always give the same interval.
_SEED = 2544


@dataclass(frozen=True)
class RatioEstimate:
    """A ratio of candidate to baseline."""

    ratio: float
    interval: tuple[float, float]
    deviation: float
    """Standard error of the ratio's logarithm, derived from the interval."""
    freedom: int
    """Degrees of freedom of the standard error."""

    def inverse(self) -> RatioEstimate:
        """Return the ratio of the baseline to the candidate."""
        low, high = self.interval
        return RatioEstimate(1 / self.ratio, (1 / high, 1 / low), self.deviation, self.freedom)


def needed_samples(confidence: float) -> int:
    """Return the minimum number of samples for an interval of this confidence.

    With fewer samples, the probability that all lie on the same side of the median exceeds the permitted error.
    """
    return math.ceil(1 - math.log2(1 - confidence))


def estimate_paired_ratio(baseline: Sequence[float], candidate: Sequence[float], confidence: float) -> RatioEstimate:
    """Return the median ratio of pairs; each pair was measured back to back, so common influences cancel.

    Raises:
        ValueError: there are too few samples, the sides differ in number, or a sample is not above 0.
    """
    if len(baseline) != len(candidate):
        raise ValueError(f"{len(baseline)} samples of the baseline and {len(candidate)} of the candidate are not pairs")
    differences = _logarithms(candidate, confidence) - _logarithms(baseline, confidence)
    return _estimate((differences,), _median, confidence)


def estimate_ratio(baseline: Sequence[float], candidate: Sequence[float], confidence: float) -> RatioEstimate:
    """Return the ratio of the medians of samples that are not in pairs.

    Raises:
        ValueError: there are too few samples, or a sample is not above 0.
    """
    logarithms = _logarithms(candidate, confidence), _logarithms(baseline, confidence)
    estimate = _estimate(logarithms, _difference_of_medians, confidence)
    if tuple(candidate) != tuple(baseline):
        return estimate
    # Equal samples differ in no direction, whatever the resamples are.
    return RatioEstimate(estimate.ratio, symmetric(estimate.interval), estimate.deviation, estimate.freedom)


def symmetric(interval: tuple[float, float]) -> tuple[float, float]:
    """Return the smallest interval that contains this interval and 1, and that stays the same if the sides are exchanged."""
    bound = max(1.0, 1 / interval[0], interval[1])
    return 1 / bound, bound


def _logarithms(samples: Sequence[float], confidence: float) -> Samples:
    values = np.asarray(samples, dtype=np.float64)
    if len(values) < needed_samples(confidence):
        raise ValueError(
            f"{len(values)} sample{'s' * (len(values) > 1)}; an interval of {100 * confidence:g} % needs {needed_samples(confidence)}"
        )
    if not np.all(np.isfinite(values)) or not np.all(values > 0):
        raise ValueError("a ratio needs samples above 0")
    logarithms: Samples = np.log(values)
    return logarithms


def _median(samples: Samples, axis: int = -1) -> Samples:
    return np.asarray(np.median(samples, axis=axis))


def _difference_of_medians(candidate: Samples, baseline: Samples, axis: int = -1) -> Samples:
    return np.asarray(np.median(candidate, axis=axis) - np.median(baseline, axis=axis))


def _estimate(samples: tuple[Samples, ...], statistic: Callable[..., Samples], confidence: float) -> RatioEstimate:
    freedom = min(len(values) for values in samples) - 1
    quantile = float(scipy.stats.t.ppf((1 + confidence) / 2, freedom))
    # Percentile intervals of few samples are too narrow. Hesterberg (2015) widens them as Student's t widens the normal distribution's.
    expanded = 1 - 2 * float(scipy.stats.norm.sf(math.sqrt((freedom + 1) / freedom) * quantile))
    found = scipy.stats.bootstrap(
        samples, statistic, confidence_level=expanded, n_resamples=_RESAMPLES, method="percentile", rng=np.random.default_rng(_SEED)
    )
    low, high = float(found.confidence_interval.low), float(found.confidence_interval.high)
    return RatioEstimate(math.exp(float(statistic(*samples))), (math.exp(low), math.exp(high)), (high - low) / (2 * quantile), freedom)
