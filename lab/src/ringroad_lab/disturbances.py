"""How often others disturbed the trials of some measurements, and what did it the most."""

from __future__ import annotations

from collections.abc import Iterable

from ringroad_lab.trial import Count, Disturbance, Frozen, TrialResult


class DisturbanceTally(Frozen):
    """Disturbed trials, counted."""

    watched: Count
    """Trials during which somebody watched."""
    disturbed: Count
    """Those of them that were disturbed."""
    left: Count
    """Those of the disturbed that were not repeated: figures rest on them."""
    worst: Disturbance | None = None
    """Of the disturbed."""

    def describe(self) -> str:
        """Say it in half a sentence."""
        if not self.watched:
            return "what others did during its trials is not recorded"
        if self.worst is None:
            return f"others disturbed none of {self.watched} trials"
        rest = f"its figures rest on {self.left} of these" if self.left else "all of these were repeated"
        return f"others disturbed {self.disturbed} of {self.watched} trials, and {rest}; at worst they took {self.worst.describe()}"


def tally_disturbances(trials: Iterable[TrialResult]) -> DisturbanceTally:
    """Count the disturbed ones of some trials."""
    watched = [trial for trial in trials if trial.disturbance is not None]
    disturbed = [trial for trial in watched if trial.is_disturbed]
    return DisturbanceTally(
        watched=len(watched),
        disturbed=len(disturbed),
        left=sum(not trial.is_repeated for trial in disturbed),
        worst=max((trial.disturbance for trial in disturbed if trial.disturbance), key=lambda each: each.ratio, default=None),
    )
