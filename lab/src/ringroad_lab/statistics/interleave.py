"""The order in which devices take turns, so that slow changes affect all devices equally."""

from __future__ import annotations

from collections.abc import Sequence


def turns(labels: Sequence[str], repetitions: int) -> tuple[tuple[str, ...], ...]:
    """Return the order of each repetition, alternately forward and backward: A B, B A, A B, ...

    A constant drift then affects all devices equally over each two repetitions; an even number of repetitions is best.
    """
    return tuple(tuple(labels) if repetition % 2 == 0 else tuple(reversed(labels)) for repetition in range(repetitions))
