"""Counts disturbed trials of measurements, and disturbed parts of sweeps, and finds the worst disturbance."""

from __future__ import annotations

from collections.abc import Iterable

from ringroad_lab.record import SweepPart
from ringroad_lab.trial import Count, Disturbance, Frozen, TrialResult


class DisturbanceTally(Frozen):
    """Counts of disturbed trials; a part of a sweep counts as a trial."""

    watched: Count
    """Trials with a record of disturbances."""
    disturbed: Count
    """Watched trials that were disturbed."""
    left: Count
    """Disturbed trials that were not repeated: figures rest on them."""
    worst: Disturbance | None = None
    """Worst disturbance of the disturbed trials."""

    def describe(self) -> str:
        """Describe the counts, as a part of a sentence."""
        if not self.watched:
            return "what others did during its trials is not recorded"
        if self.worst is None:
            return f"others disturbed none of {self.watched} trials"
        rest = f"its figures rest on {self.left} of these" if self.left else "all of these were repeated"
        return f"others disturbed {self.disturbed} of {self.watched} trials, and {rest}; at worst they took {self.worst.describe()}"


def tally_disturbances(trials: Iterable[TrialResult | SweepPart]) -> DisturbanceTally:
    """Count the disturbed trials and parts of sweeps."""
    watched = [trial for trial in trials if trial.disturbance is not None]
    disturbed = [trial for trial in watched if trial.is_disturbed]
    return DisturbanceTally(
        watched=len(watched),
        disturbed=len(disturbed),
        left=sum(not trial.is_repeated for trial in disturbed),
        worst=max((trial.disturbance for trial in disturbed if trial.disturbance), key=lambda each: each.ratio, default=None),
    )
