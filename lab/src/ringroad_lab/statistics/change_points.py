"""Change points of a series: points at which it moves to another level and stays there.

A step is located where the means before and after it differ most, relative to their standard error: the likelihood ratio of a step in
normal noise. Its significance is tested with the same points in random orders (a permutation test), so no distribution of the noise is
assumed. Each side of a step is searched again (binary segmentation). If no step is found, the search is for a stretch whose mean differs
from the mean of the rest (circular binary segmentation, Olshen and others 2004): a regression and its repair cancel in the means on the
two sides of any point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
import scipy
from numpy.typing import NDArray
from pydantic import Field

from ringroad_lab.record import Better
from ringroad_lab.statistics.verdict import Verdict
from ringroad_lab.trial import Frozen

# Value at which fewer than 5 % of series without a step have a change point; the tests check this.
MAX_P_VALUE = 0.04
# The share of the p-value for steps; the rest is for stretches.
_STEP_SHARE = 0.75
# Smallest step that is reported: on a shared machine a level is never more stable.
MIN_CHANGE = 0.03
# The minimum number of points of a level: one or two outliers are not a level.
MIN_LEVEL_POINTS = 3
# The probability with which a visible step is found.
POWER = 0.9
# Maximum number of points.
MOST_POINTS = 1000
# Steps for which the number of needed points is reported.
REPORTED_STEPS = (0.05, 0.1, 0.2)
# Fewer points have so few orders that even a clear step can have a large p-value.
_FEWEST_POINTS = 12
_RESAMPLES = 1999
_BATCH = 200
_REFINEMENTS = 3
# The same series always has the same change points.
_SEED = 2544

Points = NDArray[np.floating[Any]]
Indexes = NDArray[np.integer[Any]]


class ChangePoint(Frozen):
    """A step in a series."""

    index: Annotated[int, Field(ge=1)]
    """Index of the first point on the new level."""
    mean_before: float
    """Mean of the points since the previous change point."""
    mean_after: float
    """Mean of the points up to the next change point."""
    p_value: float

    @property
    def change(self) -> float | None:
        """Relative change, 0.05 for 5 % more; None if the level before was 0."""
        return self.mean_after / self.mean_before - 1 if self.mean_before else None

    def verdict(self, better: Better) -> Verdict:
        """Return whether a step of a metric with this better direction is a regression or an improvement."""
        if better is Better.NEITHER:
            return Verdict.INCONCLUSIVE
        return Verdict.IMPROVEMENT if (self.mean_after > self.mean_before) == (better is Better.HIGHER) else Verdict.REGRESSION


class VisibleSteps(Frozen):
    """Visible steps of a series: steps in its middle that are found nine times out of ten."""

    smallest: float | None
    """The smallest visible relative step; None if no step is visible, or if the level is 0."""
    needed_points: dict[float, int | None]
    """The number of points, half of them on each side, that makes a relative step of this size visible; None if it is more than 1000."""


def change_points(series: Sequence[float], *, min_change: float = MIN_CHANGE, max_p_value: float = MAX_P_VALUE) -> tuple[ChangePoint, ...]:
    """Return the steps of a series, in its order, that are at least `min_change` (relative).

    Raises:
        ValueError: a point is not a finite number, or a limit is out of range.
    """
    if not all(np.isfinite(series)):
        raise ValueError("a series has only finite points")
    if min_change < 0 or not 0 < max_p_value < 1:
        raise ValueError("the smallest change is 0 or more, the greatest p-value between 0 and 1")
    points = np.asarray(series, dtype=np.float64)
    p_values = _splits(points, 0, max_p_value)
    # A step that looked large relative to all other points can be small between its neighbouring levels.
    while p_values:
        found = _between_levels(points, p_values)
        smallest = min(found, key=_size)
        if _size(smallest) >= min_change:
            return found
        del p_values[smallest.index]
    return ()


def visible_steps(series: Sequence[float], found: Sequence[ChangePoint], min_change: float = MIN_CHANGE) -> VisibleSteps:
    """Return the visible steps of a series, from the noise around its levels."""
    points = np.asarray(series, dtype=np.float64)
    noise = _relative_noise(points, found)

    def smallest(count: int) -> float | None:
        deviations = _visible_deviations(count)
        if noise is None or deviations is None:
            return None
        # Half of the steps that are as large as the smallest change look smaller.
        return max(deviations * noise, min_change + float(scipy.stats.norm.ppf(POWER)) * noise * 2 / math.sqrt(count))

    def needed(step: float) -> int | None:
        counts = range(2 * MIN_LEVEL_POINTS, MOST_POINTS + 1)
        return next((count for count in counts if (least := smallest(count)) is not None and least <= step), None)

    return VisibleSteps(
        smallest=smallest(len(points)),
        needed_points={step: needed(step) for step in REPORTED_STEPS if noise is not None and step > min_change},
    )


def _splits(points: Points, start: int, max_p_value: float) -> dict[int, float]:
    """Return the level changes in the part of a series that begins at `start`, with their p-values."""
    if len(points) < 2 * MIN_LEVEL_POINTS or not np.ptp(points):
        return {}
    places, p_value = _step(points)
    if p_value > max_p_value * _STEP_SHARE:
        places, p_value = _stretch(points)
        if p_value > max_p_value * (1 - _STEP_SHARE):
            return {}
    found = {start + place: p_value for place in places}
    edges = [0, *places, len(points)]
    for edge, following in pairwise(edges):
        # The parts share the probability of a false alarm.
        found |= _splits(points[edge:following], start + edge, max_p_value / (len(places) + 1))
    return dict(sorted(found.items()))


def _step(points: Points) -> tuple[tuple[int, ...], float]:
    """Return the most likely position of a step, and its p-value."""
    starts = np.zeros(len(points) - 2 * MIN_LEVEL_POINTS + 1, dtype=np.int64)
    ends = np.arange(MIN_LEVEL_POINTS, len(points) - MIN_LEVEL_POINTS + 1)
    return (int(ends[_contrasts(points, starts, ends).argmax()]),), _p_value(points, starts, ends)


def _stretch(points: Points) -> tuple[tuple[int, ...], float]:
    """Return the first point of the most likely stretch, the point after its end, and the p-value."""
    count = len(points)
    if count < 3 * MIN_LEVEL_POINTS:
        return (), 1.0
    powers = range(1 + int(math.log(count / MIN_LEVEL_POINTS, 1.5)))
    lengths = sorted({round(MIN_LEVEL_POINTS * 1.5**power) for power in powers})
    last = count - MIN_LEVEL_POINTS
    # A few lengths and shifts represent all others: every stretch mostly overlaps one of them.
    some = [(at, at + n) for n in lengths for at in range(MIN_LEVEL_POINTS, last - n + 1, max(1, n // 4))]
    starts, ends = np.array(some).T
    likeliest = int(_contrasts(points, starts, ends).argmax())
    start, end = int(starts[likeliest]), int(ends[likeliest])
    # Refine it to the most likely of all stretches.
    for _ in range(_REFINEMENTS):
        firsts = np.arange(MIN_LEVEL_POINTS, end - MIN_LEVEL_POINTS + 1)
        start = int(firsts[_contrasts(points, firsts, np.full_like(firsts, end)).argmax()])
        lasts = np.arange(start + MIN_LEVEL_POINTS, last + 1)
        end = int(lasts[_contrasts(points, np.full_like(lasts, start), lasts).argmax()])
    return (start, end), _p_value(points, starts, ends)


def _p_value(points: Points, starts: Indexes, ends: Indexes) -> float:
    """Return the share of random orders of the points whose greatest contrast is at least the series' own."""
    found = scipy.stats.permutation_test(
        (points,),
        lambda each, axis: _contrasts(each, starts, ends).max(axis=axis),
        permutation_type="pairings",
        alternative="greater",
        vectorized=True,
        n_resamples=_RESAMPLES,
        batch=_BATCH,
        rng=np.random.default_rng(_SEED),
    )
    return float(found.pvalue)


def _contrasts(points: Points, starts: Indexes, ends: Indexes) -> Points:
    """Return, for each stretch, the difference of its mean from the mean of the rest, divided by the standard error for a noise of 1."""
    count, lengths = points.shape[-1], ends - starts
    sums = np.cumsum(points - points.mean(axis=-1, keepdims=True), axis=-1)
    sums = np.concatenate([np.zeros_like(sums[..., :1]), sums], axis=-1)
    return np.asarray(np.abs(sums[..., ends] - sums[..., starts]) / np.sqrt(lengths * (count - lengths) / count))


def _between_levels(points: Points, p_values: dict[int, float]) -> tuple[ChangePoint, ...]:
    means = [float(level.mean()) for level in np.split(points, list(p_values))]
    return tuple(
        ChangePoint(index=index, mean_before=before, mean_after=after, p_value=p_value)
        for (index, p_value), (before, after) in zip(p_values.items(), pairwise(means), strict=True)
    )


def _size(point: ChangePoint) -> float:
    return math.inf if point.change is None else abs(point.change)


def _relative_noise(points: Points, found: Sequence[ChangePoint]) -> float | None:
    """Return the standard deviation of a series around its levels, divided by its mean; None if it is undefined."""
    levels = np.split(points, [point.index for point in found])
    freedom = len(points) - len(levels)
    if freedom < 1 or not points.mean():
        return None
    return math.sqrt(sum(float(((level - level.mean()) ** 2).sum()) for level in levels) / freedom) / abs(float(points.mean()))


def _visible_deviations(count: int) -> float | None:
    """Return the step in the middle of `count` points that is found nine times out of ten, in standard deviations of normal noise.

    The threshold is Student's t with the error probability shared among the effective number of independent positions of a step. Both
    constants are fitted to simulations with 12 to 200 points; the tests check them.
    """
    if count < _FEWEST_POINTS:
        return None
    places = max(1.0, 8.2 * math.log(count) - 16)
    threshold = float(scipy.stats.t.isf(MAX_P_VALUE * _STEP_SHARE / (2 * places), count - 2))
    return (threshold + 0.85 + 5 / count) * 2 / math.sqrt(count)
