"""The verdicts of a comparison."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from ringroad_lab.record import Better
from ringroad_lab.trial import Frozen

DEFAULT_LIMIT = 0.03
"""A comparison that could have missed a relative difference of this size does not report `no difference`."""


class Verdict(StrEnum):
    """The result of a comparison, in the order of severity."""

    NO_DIFFERENCE = "no difference"
    """The interval of the ratio lies within the noise floor and margin, and a change of the limit would have been detected."""
    IMPROVEMENT = "improvement"
    REGRESSION = "regression"
    INCONCLUSIVE = "inconclusive"
    """The samples are too few or too widely spread for a decision."""
    INVALID = "invalid"
    """A side has no valid value."""


def by_severity(verdicts: Iterable[Verdict]) -> dict[Verdict, int]:
    """Return the number of each verdict, the most severe first."""
    found = list(verdicts)
    return {verdict: found.count(verdict) for verdict in reversed(Verdict) if verdict in found}


class MetricComparison(Frozen):
    """A candidate compared with a baseline, in one metric."""

    baseline: tuple[float, ...]
    """Samples."""
    candidate: tuple[float, ...]
    better: Better
    ratio: float | None
    """Candidate to baseline: the ratio of the medians, or the median ratio of pairs; None if it is undefined."""
    interval: tuple[float, float] | None
    """Confidence interval of the ratio."""
    confidence: Annotated[float, Field(gt=0, lt=1)]
    smallest_detectable: float | None
    """Smallest relative difference that this number of samples with this spread usually detects; None if it is unknown."""
    more_samples: int | None = None
    """Approximate number of further samples of each side that decides an inconclusive comparison; None if none does or is needed."""
    verdict: Verdict
    reason: str = ""
