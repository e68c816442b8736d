"""Comparisons that continue until they are decided: each look at the samples spends a part of the false alarm probability."""

from __future__ import annotations

from ringroad_lab.statistics.two_samples import DEFAULT_CONFIDENCE

# Ratio of the samples of a look to those of the previous look; the false alarm probability of a look shrinks by the same factor.
GROWTH = 2


def look_confidence(looks: int, confidence: float = DEFAULT_CONFIDENCE) -> float:
    """Return the confidence of the last of a number of looks; 0 looks are a comparison that does not continue.

    The first look spends half of the false alarm probability, each further look half of the rest. So any number of looks together
    never exceeds that probability (Bonferroni's inequality).
    """
    return 1 - (1 - confidence) * 0.5**looks
