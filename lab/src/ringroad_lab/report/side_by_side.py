"""Several candidates beside one baseline: one table of their headline metrics, then each comparison by itself."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ringroad_lab.comparison import ComparisonRow, RowKey, RunComparison
from ringroad_lab.report.charts import comparison_chart
from ringroad_lab.report.html import render_template
from ringroad_lab.report.markdown import comparison_blocks, comparison_name, table
from ringroad_lab.report.quantity import percent_change, quantity

_NOTHING = "\u2013"


@dataclass(frozen=True)
class SideBySideRow:
    """A headline metric of the baseline, and of each candidate that has it."""

    key: RowKey
    """The baseline's; the label of the device is the baseline's, too."""
    unit: str
    baseline: tuple[float, ...]
    """Samples."""
    candidates: tuple[ComparisonRow | None, ...]
    """In the order of the comparisons; None: not compared."""


def side_by_side(comparisons: Sequence[RunComparison]) -> list[SideBySideRow]:
    """Return the headline metrics of all candidates, in the order in which the candidates have them."""
    found: dict[RowKey, list[ComparisonRow | None]] = {}
    for index, comparison in enumerate(comparisons):
        for row in comparison.rows:
            if row.is_headline:
                key = row.key.model_copy(update={"dut": row.baseline_dut})
                found.setdefault(key, [None] * len(comparisons))[index] = row
    return [_row(key, rows) for key, rows in found.items()]


def _row(key: RowKey, rows: Sequence[ComparisonRow | None]) -> SideBySideRow:
    known = [row for row in rows if row is not None]
    # A comparison of pairs leaves samples out that the candidate has no counterpart of.
    baseline = max((row.comparison.baseline for row in known), key=len)
    return SideBySideRow(key, known[0].unit, baseline, tuple(rows))


def as_markdown(comparisons: Sequence[RunComparison]) -> str:
    """Return the candidates as Markdown."""
    rows = [
        [
            row.key.dut,
            comparison_name(row.key),
            quantity(statistics.median(row.baseline), row.unit) if row.baseline else _NOTHING,
            *(_cell(each) for each in row.candidates),
        ]
        for row in side_by_side(comparisons)
    ]
    head = ["Device", "Measured", f"Baseline {comparisons[0].baseline}", *(each.candidate for each in comparisons)]
    blocks = ["## Side by side", table(head, rows)]
    for comparison in comparisons:
        blocks += ["## Comparison", *comparison_blocks(comparison)]
    return "\n\n".join(blocks) + "\n"


def as_html(comparisons: Sequence[RunComparison]) -> str:
    """Return the candidates as one file for the browser; a report of each run has its trials and the rest."""
    charts = [comparison_chart(each) for each in comparisons]
    return render_template("side_by_side.html.j2", comparisons=comparisons, charts=charts, rows=side_by_side(comparisons))


def _cell(row: ComparisonRow | None) -> str:
    if row is None:
        return _NOTHING
    c = row.comparison
    figures = [quantity(statistics.median(c.candidate), row.unit)] if c.candidate else []
    return ", ".join([*figures, *([percent_change(c.ratio)] if c.ratio is not None else []), c.verdict])
