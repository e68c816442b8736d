"""Search for the greatest value that passes: of a rate, the length of a burst, a number of addresses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ringroad_lab.method.judge import JudgedTrial

Probe = Callable[[float], JudgedTrial]
"""Tries a value."""


@dataclass(frozen=True)
class Bracket:
    """What a search came to."""

    passed: float | None
    """Greatest value that passed below all that did not; None where even the least did not."""
    refused: float | None
    """Least value tried above that did not pass; None where the greatest passed."""
    refusal: JudgedTrial | None
    """The trial in which it did not: the device failed, or the generator could not."""


@dataclass(frozen=True)
class Grid:
    """The values of a search: from where to where, and when two are close enough."""

    minimum: float
    maximum: float
    resolution: float = 0.0
    """Two values are close enough when they differ by so much of the greater."""
    step: float = 0.0
    """Two values are close enough when they differ by so much; with it all values are whole numbers."""

    def is_narrow(self, low: float, high: float) -> bool:
        """Whether there is nothing to try between two values."""
        return high - low <= max(self.resolution * high, self.step)

    def middle(self, low: float, high: float) -> float:
        """Return the value to try between two that are not close enough."""
        middle = low + (high - low) / 2
        return float(int(middle)) if self.step else middle

    def below(self, value: float, steps: int) -> float:
        """Return the value that many resolutions lower, not less than the minimum."""
        lower = value - steps * max(self.resolution * value, self.step)
        return max(self.minimum, float(int(lower)) if self.step else lower)


def search_greatest(probe: Probe, grid: Grid, start: float) -> Bracket:
    """Find the greatest value that passes, by halving (RFC 2544 section 26.1 leaves the way open).

    The maximum is tried where the start passes, the minimum where nothing above it does; never a value outside the two.
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
            # Nothing passed so far: whether anything does is worth more than how near the least that fails is.
            value = grid.minimum
        elif is_narrow:
            break
        else:
            value = grid.middle(floor, refused)
    return Bracket(passed, refused, refusal)


def validate(probe: Probe, grid: Grid, found: Bracket) -> Bracket:
    """Check what a search found by trials of another kind, such as longer ones.

    Where it does not pass, lower values are tried, in steps that double, and then what lies between.
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
