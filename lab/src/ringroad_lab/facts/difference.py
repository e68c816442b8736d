"""What differs between the facts of two runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Facts = Mapping[str, Mapping[str, str]]

# They differ in every two runs, and say nothing about either.
_VOLATILE = frozenset({("memory", "available at the start"), ("processor", "frequency at the start")})


@dataclass(frozen=True)
class FactDifference:
    """A fact that is not the same."""

    group: str
    name: str
    baseline: str | None
    """None: that run does not know of it."""
    candidate: str | None


def differences(baseline: Facts, candidate: Facts) -> tuple[FactDifference, ...]:
    """Return the facts that differ, in the order of the baseline and then of the candidate; what differs always is left out."""
    names = dict.fromkeys((group, name) for facts in (baseline, candidate) for group, values in facts.items() for name in values)
    found = []
    for group, name in names:
        left, right = baseline.get(group, {}).get(name), candidate.get(group, {}).get(name)
        if left != right and (group, name) not in _VOLATILE:
            found.append(FactDifference(group, name, left, right))
    return tuple(found)
