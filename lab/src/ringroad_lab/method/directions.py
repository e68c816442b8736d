"""The figures of each direction of a trial that goes both ways, and their sum."""

from __future__ import annotations

from ringroad_lab.record import Better, Metric
from ringroad_lab.trial import TrialResult


def direction_metrics(name: str, trial: TrialResult) -> dict[str, Metric]:
    """Return what arrived in each direction, and in both together, frames/s; of a trial that goes one way there is nothing to add."""
    if len(trial.directions) < 2:
        return {}
    rates = {f"{way.sender}_to_{way.receiver}": way.received_frames / way.transmit_s for way in trial.directions if way.transmit_s}
    return {
        f"{name}_{part}_fps": Metric(value=value, unit="frames/s", better=Better.HIGHER)
        for part, value in {**rates, "sum": sum(rates.values())}.items()
    }
