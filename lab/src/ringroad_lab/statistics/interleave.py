"""The order in which devices take turns, so that slow changes affect all of them alike."""

from __future__ import annotations

from collections.abc import Sequence


def turns(labels: Sequence[str], repetitions: int) -> tuple[tuple[str, ...], ...]:
    """Return the order of each repetition: forth and back in turn, A B, B A, A B, ...

    A drift at a constant rate then adds to every device as much as to any other, over each two repetitions; an even number of them is best.
    """
    return tuple(tuple(labels) if repetition % 2 == 0 else tuple(reversed(labels)) for repetition in range(repetitions))
