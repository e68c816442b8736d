"""Search for the greatest value that passes: a rate, the length of a burst, or a number of addresses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ringroad_lab.method.judgement import JudgedTrial

Probe = Callable[[float], JudgedTrial]
"""Runs a trial with a value."""


@dataclass(frozen=True)
class Bracket:
    """Result of a search."""

    passed: float | None
    """Greatest value that passed below all values that did not pass; None if even the minimum did not pass."""
    refused: float | None
    """Least value above `passed` that did not pass; None if the maximum passed."""
    refusal: JudgedTrial | None
    """The trial of `refused`: the device failed, or the generator could not carry the load."""


@dataclass(frozen=True)
class SearchGrid:
    """The range of a search, and when two values are close enough."""

    minimum: float
    maximum: float
    resolution: float = 0.0
    """Two values are close enough if they differ by at most this part of the greater value."""
    step: float = 0.0
    """Two values are close enough if they differ by at most this; if set, all values are whole numbers."""

    def is_narrow(self, low: float, high: float) -> bool:
        """Return whether two values are close enough."""
        return high - low <= max(self.resolution * high, self.step)

    def middle(self, low: float, high: float) -> float:
        """Return the value to try between two that are not close enough."""
        middle = low + (high - low) / 2
        return float(int(middle)) if self.step else middle

    def below(self, value: float, steps: int) -> float:
        """Return the value that is `steps` resolutions lower, but not below the minimum."""
        lower = value - steps * max(self.resolution * value, self.step)
        return max(self.minimum, float(int(lower)) if self.step else lower)


def search_greatest(probe: Probe, grid: SearchGrid, start: float) -> Bracket:
    """Find the greatest value that passes, by binary search (RFC 2544 section 26.1 leaves the algorithm open).

    Tries the maximum if the start passes, and the minimum if nothing above it passes. Never tries a value outside these two.
    """
    passed: float | None = None
    refused: float | None = None
    refusal: JudgedTrial | None = None
    value = min(max(start, grid.minimum), grid.maximum)
    while True:
        judged = probe(value)
        if judged.passes:
            passed = value
        else:
            refused, refusal = value, judged
        if refused is None:
            if value >= grid.maximum:
                break
            value = grid.maximum
            continue
        if refused <= grid.minimum:
            break
        floor = grid.minimum if passed is None else passed
        is_narrow = grid.is_narrow(floor, refused)
        if passed is None and (is_narrow or refused <= 2 * grid.minimum):
            # No value passed so far: whether any passes matters more than the exact value that fails.
            value = grid.minimum
        elif is_narrow:
            break
        else:
            value = grid.middle(floor, refused)
    return Bracket(passed, refused, refusal)


def validate(probe: Probe, grid: SearchGrid, found: Bracket) -> Bracket:
    """Check the result of a search with trials of another kind, such as longer ones.

    If the result does not pass, tries lower values in doubling steps, and then the values in between.
    """
    if found.passed is None:
        return found
    value, refused, refusal = found.passed, found.refused, found.refusal
    steps = 1
    while not (judged := probe(value)).passes:
        refused, refusal = value, judged
        if value <= grid.minimum:
            return Bracket(None, refused, refusal)
        value = grid.below(value, steps)
        steps *= 2
    passed = value
    while refused is not None and not grid.is_narrow(passed, refused):
        value = grid.middle(passed, refused)
        if (judged := probe(value)).passes:
            passed = value
        else:
            refused, refusal = value, judged
    return Bracket(passed, refused, refusal)
