"""The verdicts of a comparison."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from ringroad_lab.record import Better
from ringroad_lab.trial import Frozen

DEFAULT_LIMIT = 0.03
"""A comparison that could have missed a relative difference of this does not say that there is none."""


class Verdict(StrEnum):
    """What came of a comparison. In the order of severity."""

    NO_DIFFERENCE = "no difference"
    """The interval of the ratio lies within what the setup's own noise and the margin allow, and a change of the limit would have shown."""
    IMPROVEMENT = "improvement"
    REGRESSION = "regression"
    INCONCLUSIVE = "inconclusive"
    """The samples are too few or too far apart to tell."""
    INVALID = "invalid"
    """One side has no valid figure."""


def by_severity(verdicts: Iterable[Verdict]) -> dict[Verdict, int]:
    """Return how many there are of each verdict, the most severe first."""
    found = list(verdicts)
    return {verdict: found.count(verdict) for verdict in reversed(Verdict) if verdict in found}


class Comparison(Frozen):
    """A candidate beside a baseline, in one metric."""

    baseline: tuple[float, ...]
    """Samples."""
    candidate: tuple[float, ...]
    better: Better
    ratio: float | None
    """Candidate to baseline: the ratio of the medians, or of samples taken in pairs the median ratio; None where there is none."""
    interval: tuple[float, float] | None
    """Confidence interval of the ratio."""
    confidence: Annotated[float, Field(gt=0, lt=1)]
    smallest_detectable: float | None
    """Smallest relative difference that so many samples of such spread would mostly have shown; None where that cannot be told."""
    more_samples: int | None = None
    """About how many more of each side would decide an inconclusive comparison; None where no number would, or none is needed."""
    verdict: Verdict
    reason: str = ""
