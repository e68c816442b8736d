"""Comparisons that go on until they are decided: looks at the samples so far, each with its part of the chance of a false alarm."""

from __future__ import annotations

from ringroad_lab.statistics.comparison import DEFAULT_CONFIDENCE

# Samples of a look beside those of the look before: the chance that each look may spend shrinks as fast.
GROWTH = 2


def look_confidence(looks: int, confidence: float = DEFAULT_CONFIDENCE) -> float:
    """Return the confidence of the last of so many looks; 0 are a comparison that does not go on.

    The first look spends half of the chance of a false alarm, each further one half of what is left. So all together, however many,
    never have more than that chance (Bonferroni's inequality).
    """
    return 1 - (1 - confidence) * 0.5**looks
