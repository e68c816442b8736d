"""The rates of each direction of a bidirectional trial, and their sum."""

from __future__ import annotations

from ringroad_lab.record import Better, Metric
from ringroad_lab.trial import TrialResult


def direction_metrics(name: str, trial: TrialResult) -> dict[str, Metric]:
    """Return the rates received in each direction and their sum, frames/s; empty for a unidirectional trial."""
    if len(trial.directions) < 2:
        return {}
    rates = {f"{way.sender}_to_{way.receiver}": way.received_frames / way.transmit_s for way in trial.directions if way.transmit_s}
    return {
        f"{name}_{part}_fps": Metric(value=value, unit="frames/s", better=Better.HIGHER)
        for part, value in {**rates, "sum": sum(rates.values())}.items()
    }
