"""A run as CSV: a row for each metric of each measurement; a measurement without a metric has a row with its status.

Each row also has the frames lost in the trials of its measurement, by place.
"""

from __future__ import annotations

import csv
import io
from typing import ClassVar

from ringroad_lab.comparison import RunComparison
from ringroad_lab.record import Measurement, RunRecord
from ringroad_lab.report.interface import Reporter
from ringroad_lab.report.loss_rows import measurement_loss, places
from ringroad_lab.trial import LOSS_PLACES

COLUMNS = (
    "run_id",
    "name",
    "run_started_at",
    "number",
    "dut",
    "driver",
    "topology",
    "method",
    "frame",
    "repetition",
    "started_at",
    "status",
    "metric",
    "value",
    "unit",
    "better",
    "is_headline",
    "lost_frames",
    *(f"lost_{place}" for place in LOSS_PLACES),
    "lost_of_device",
)
# Spreadsheets execute a text with such a beginning as a formula.
_FORMULA_BEGINNINGS = ("=", "+", "-", "@", "\t", "\r")


class CsvReporter(Reporter):
    """Renders a run."""

    title: ClassVar[str] = "a row for each metric"
    suffix: ClassVar[str] = ".csv"
    media_type: ClassVar[str] = "text/csv"

    def render(self, record: RunRecord, comparison: RunComparison | None = None) -> str:
        """Render all metrics; times are seconds since 1970, values in full precision."""
        drivers = {dut.label: dut.driver for dut in record.duts}
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for m in record.measurements:
            beginning = [
                *map(_text, (record.run_id, record.name)),
                repr(record.started_at),
                m.number,
                *map(_text, (m.dut, drivers.get(m.dut, ""), m.topology, m.method, m.frame.name)),
                m.repetition,
                repr(m.started_at),
                str(m.outcome.status),
            ]
            losses = _losses(m)
            if not m.outcome.metrics:
                writer.writerow([*beginning, "", "", "", "", "", *losses])
            for name, metric in m.outcome.metrics.items():
                is_headline = "yes" if name == m.outcome.headline else "no"
                writer.writerow([*beginning, _text(name), repr(metric.value), _text(metric.unit), str(metric.better), is_headline, *losses])
        return file.getvalue()


def _losses(measurement: Measurement) -> list[str]:
    """Return the frames lost in its trials; empty if the places of loss were not recorded."""
    loss = measurement_loss([measurement])
    if loss is None:
        return [""] * (2 + len(LOSS_PLACES))
    return [str(loss.frames), *("unknown" if frames is None else str(frames) for frames in places(loss)), str(loss.of_device)]


def _text(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA_BEGINNINGS) else text
