"""The forms in which a report can have rates, besides frames per second of one direction."""

from __future__ import annotations

from enum import StrEnum

from ringroad_lab.frame_size import LINE_OVERHEAD_BYTES
from ringroad_lab.record import Measurement, Metric, RunRecord

FRAME_RATE = "frames/s"
L1_ENDING = "_l1_bps"
"""Ending of the names of rates at layer 1."""
SUM_L1_ENDING = "_sum_l1_bps"
"""Ending of the names of those of two directions together."""
SUM_ENDING = "_sum_fps"
"""Ending of the names of frame rates of two directions together."""


class Rates(StrEnum):
    """The form of rates in a report."""

    DIRECTION = "direction"
    """Frames per second of one direction, as the record has them."""
    SUM_L1 = "sum-l1"
    """All directions together: bits per second at layer 1, where preamble and gap count with each frame, and frames per second."""

    @property
    def words(self) -> str:
        """Words for people."""
        return "frames/s of one direction" if self is Rates.DIRECTION else "Mbit/s at layer 1, both directions"

    def of(self, record: RunRecord) -> RunRecord:
        """Return a record whose headline rates have this form."""
        if self is Rates.DIRECTION:
            return record
        names = {m.outcome.headline: _name(m) for m in record.measurements if _is_rate(m)}
        floors = (each.model_copy(update={"metric": names.get(each.metric, each.metric)}) for each in record.noise_floors)
        measurements = (_at_layer_1(m) if _is_rate(m) else m for m in record.measurements)
        return record.model_copy(update={"measurements": tuple(measurements), "noise_floors": tuple(floors)})


def _is_rate(m: Measurement) -> bool:
    return m.outcome.headline in m.outcome.metrics and m.outcome.metrics[m.outcome.headline].unit == FRAME_RATE


def _directions(m: Measurement) -> int:
    return 2 if any(trial.request.load.bidirectional for trial in m.trials) else 1


def _name(m: Measurement) -> str:
    return m.outcome.headline.removesuffix("_fps") + (SUM_L1_ENDING if _directions(m) == 2 else L1_ENDING)


def _at_layer_1(m: Measurement) -> Measurement:
    rate = m.outcome.metrics[m.outcome.headline]
    bits = 8 * (m.frame.mean_bytes + LINE_OVERHEAD_BYTES)
    metric = Metric(value=rate.value * _directions(m) * bits, unit="bit/s", better=rate.better)
    outcome = m.outcome.model_copy(update={"headline": _name(m), "metrics": {_name(m): metric, **m.outcome.metrics}})
    return m.model_copy(update={"outcome": outcome})
