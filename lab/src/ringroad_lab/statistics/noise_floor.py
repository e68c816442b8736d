"""The difference between two measurements of the same build: the reference for every comparison on the same test bed."""

from __future__ import annotations

from collections.abc import Sequence

from ringroad_lab.statistics.bootstrap import estimate_paired_ratio, needed_samples, symmetric
from ringroad_lab.statistics.two_samples import DEFAULT_CONFIDENCE


def noise_floor_interval(first: Sequence[float], second: Sequence[float], confidence: float = DEFAULT_CONFIDENCE) -> tuple[float, float]:
    """Return the interval of the ratio of the same build to itself, from pairs measured in the same way as for a comparison.

    With too few pairs for a confidence interval, return the range of their ratios. The interval is (1 / x, x): both builds are the same.

    Raises:
        ValueError: there are no pairs, or a sample is not above 0.
    """
    if not first or len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} samples are not pairs")
    if not all(sample > 0 for sample in (*first, *second)):
        raise ValueError("a ratio needs samples above 0")
    if len(first) >= needed_samples(confidence):
        return symmetric(estimate_paired_ratio(first, second, confidence).interval)
    ratios = [later / earlier for earlier, later in zip(first, second, strict=True)]
    return symmetric((min(ratios), max(ratios)))
