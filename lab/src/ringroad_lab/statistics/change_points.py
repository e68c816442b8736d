"""Change points of a series: where it went to another level and stayed there.

E-divisive means with a t-test, by Apache Otava; the method is that of "Hunter: Using Change Point Detection to Hunt for Performance
Regressions" (ICPE 2023).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from otava.analysis import compute_change_points
from pydantic import Field

from ringroad_lab.record import Better
from ringroad_lab.statistics.verdict import Verdict
from ringroad_lab.trial import Frozen

# At this value flat series of 40 points with 3 % of noise have a false change point in fewer than 5 % of cases; the tests hold it to that.
MAX_P_VALUE = 0.0003
# Smaller steps than this are not told of: a level never holds better than this on a machine that others use too.
MIN_CHANGE = 0.03
# Points that are looked at together; longer series are looked at in windows that overlap by half.
WINDOW_POINTS = 50


class ChangePoint(Frozen):
    """A step in a series."""

    index: Annotated[int, Field(ge=1)]
    """Of the first point on the new level."""
    mean_before: float
    """Of the points since the change point before this one."""
    mean_after: float
    """Of the points up to the next change point."""
    p_value: float

    @property
    def change(self) -> float | None:
        """Relative change, 0.05 for 5 % more; None where the level before was 0."""
        return self.mean_after / self.mean_before - 1 if self.mean_before else None

    def verdict(self, better: Better) -> Verdict:
        """Say whether a step of a metric that improves this way is a regression or an improvement."""
        if better is Better.NEITHER:
            return Verdict.INCONCLUSIVE
        return Verdict.IMPROVEMENT if (self.mean_after > self.mean_before) == (better is Better.HIGHER) else Verdict.REGRESSION


def change_points(series: Sequence[float], *, min_change: float = MIN_CHANGE, max_p_value: float = MAX_P_VALUE) -> tuple[ChangePoint, ...]:
    """Return the steps of a series, in its order, that are larger than `min_change` (relative).

    Steps of a series with fewer than about six points on either side are mostly not found: there is too little to tell them from noise.

    Raises:
        ValueError: a point is not a finite number, or a limit is out of range.
    """
    if not all(np.isfinite(series)):
        raise ValueError("a series has only finite points")
    if min_change < 0 or not 0 < max_p_value < 1:
        raise ValueError("the smallest change is 0 or more, the greatest p-value between 0 and 1")
    if len(series) < 2:
        return ()
    # The test divides by the spread, which is 0 where all points of a level are alike: the p-value is 0 then, as it should be.
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found, _ = compute_change_points([float(value) for value in series], WINDOW_POINTS, max_p_value, min_change)
    return tuple(
        ChangePoint(
            index=int(point.index),
            mean_before=float(point.stats.mean_1),
            mean_after=float(point.stats.mean_2),
            p_value=float(point.stats.pvalue),
        )
        for point in found
    )
