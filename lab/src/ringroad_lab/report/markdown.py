"""A report as Markdown: for merge requests and terminals."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from typing import ClassVar

from ringroad_lab.comparison import RowKey, RunComparison
from ringroad_lab.record import RunRecord
from ringroad_lab.report.figures import MARKS, MARKS_LEGEND, Cell, frames_text, metric_title
from ringroad_lab.report.interface import Reporter
from ringroad_lab.report.loss_rows import PLACE_HEADS
from ringroad_lab.report.plain_text import printable
from ringroad_lab.report.quantity import Scale, moment, percent_change, quantity
from ringroad_lab.report.view import GridSection, dut_facts, make_view

# An en dash.
_NOTHING = "\u2013"
# Markdown does not interpret an underscore within a word.
_SPECIAL = re.compile(r"([\\`*{}\[\]<>|#~&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")


class MarkdownReporter(Reporter):
    """Renders a run."""

    title: ClassVar[str] = "for merge requests and terminals"
    suffix: ClassVar[str] = ".md"
    media_type: ClassVar[str] = "text/markdown"
    compares: ClassVar[bool] = True

    def render(self, record: RunRecord, comparison: RunComparison | None = None) -> str:
        """Render a report without charts, trials and logs."""
        view = make_view(record, comparison)
        blocks = [
            f"# {_plain(record.name)}",
            f"{moment(record.started_at)}, ringroad-lab {_plain(record.lab_version)}, run {_plain(record.run_id)}",
            *map(_plain, view.sentences),
            *(f"**Warning.** {_plain(warning)}" for warning in view.warnings),
        ]
        if comparison:
            blocks += ["## Comparison", *comparison_blocks(comparison)]
        blocks.append("## Results")
        blocks += [block for part in view.grids for block in _grid_blocks(part)]
        if view.latency_lines:
            percentiles, scale = view.latency_percentiles, view.latency_scale
            rows = [
                [
                    line.topology,
                    line.dut,
                    line.frame,
                    line.load_text,
                    *(_figure(scale, line.percentiles_ns.get(p)) for p in percentiles),
                ]
                for line in view.latency_lines
            ]
            head = ["Topology", "Device", "Frames", f"Load; figures in {scale.unit}", *(f"{p:g} %" for p in percentiles)]
            blocks += ["### Latency percentiles", table(head, rows, numbers_from=4)]
        if view.loss_rows:
            rows = [[row.topology, row.method, row.dut, row.frame.name, *row.cells] for row in view.loss_rows]
            head = ["Topology", "Method", "Device", "Frames", "Lost", *PLACE_HEADS.values(), "Of the device"]
            blocks += ["## Where frames were lost", table(head, rows, numbers_from=4)]
        if view.status_groups:
            rows = [
                [f"{group.count} {group.status}", group.dut, f"{group.method}, {group.topology}", ", ".join(group.frames), group.why]
                for group in view.status_groups
            ]
            blocks += ["## Measurements with a status other than ok", table(["Status", "Device", "Method", "Frames", "Why"], rows)]
        blocks.append("## Set-up")
        blocks += [table([f"Device {dut.label}", ""], dut_facts(dut)) for dut in record.duts]
        facts = [(group, name, value) for group, entries in record.facts.items() for name, value in entries.items()]
        blocks.append(table(["Group", "Fact", ""], facts) if facts else "No facts of the machine were recorded.")
        traffic = [[t.frame.name, t.frame.genome, t.directions, t.flows] for t in view.traffic]
        blocks.append(table(["Frames", "Genome (size:weight)", "Directions", "Flows per direction"], traffic))
        if steps := [(m, step) for m in record.measurements for step in m.steps]:
            rows = [
                [
                    f"{m.number}. {m.dut}, {m.method}, {m.frame.name}",
                    s.when,
                    s.on,
                    s.name or s.run,
                    s.failure or "as expected",
                ]
                for m, s in steps
            ]
            blocks += ["## Test steps", table(["Measurement", "When", "On", "Step", "Outcome"], rows)]
        blocks += ["## Deviations from the RFCs", _list(record.deviations) or "No deviation was recorded."]
        ceilings = [[c.transport, c.frame.name, c.cause, quantity(c.ceiling_fps, "frames/s")] for c in record.ceilings]
        blocks.append("## Generator ceiling")
        head = ["Transport", "Frames", "Measured again because", "Ceiling per direction"]
        blocks.append(table(head, ceilings, numbers_from=3) if ceilings else "The generator was not tested.")
        blocks += ["## Repeat", "\n".join(f"    {printable(line)}" for line in view.command.splitlines())]
        return "\n\n".join(blocks) + "\n"


def comparison_blocks(comparison: RunComparison) -> list[str]:
    """Return a comparison as Markdown, with the headline metrics only."""
    rows = []
    for row in comparison.rows:
        c = row.comparison
        if row.is_headline:
            rows.append(
                [
                    row.key.dut,
                    comparison_name(row.key),
                    quantity(statistics.median(c.baseline), row.unit) if c.baseline else _NOTHING,
                    quantity(statistics.median(c.candidate), row.unit) if c.candidate else _NOTHING,
                    percent_change(c.ratio) if c.ratio is not None else _NOTHING,
                    " … ".join(map(percent_change, c.interval)) if c.interval else _NOTHING,
                    " … ".join(map(percent_change, row.noise_floor)) if row.noise_floor else _NOTHING,
                    f"{100 * c.smallest_detectable:.1f} %" if c.smallest_detectable is not None else _NOTHING,
                    f"{c.verdict}{f': {c.reason}' if c.reason else ''}",
                ]
            )
    head = ["Device", "Measured", "Baseline", "Candidate", "Change", "Interval", "Noise floor", "Detectable", "Verdict"]
    blocks = [
        _list(comparison.disturbances()),
        f"{_plain(comparison.candidate)} compared with the baseline {_plain(comparison.baseline)}: **{comparison.verdict}**",
        table(head, rows),
    ]
    if comparison.unmatched:
        blocks += ["Not compared:", _list(comparison.unmatched)]
    differences = [[d.group, d.name, _known(d.baseline), _known(d.candidate)] for d in comparison.environment]
    if differences:
        blocks += ["Other differences:", table(["Group", "Fact", "Baseline", "Candidate"], differences)]
    return blocks


def comparison_name(key: RowKey) -> str:
    """Return what a row compares, without its device."""
    return f"{metric_title(key.metric)}, {frames_text(key.frame)}, {key.topology}"


def _grid_blocks(part: GridSection) -> list[str]:
    grid = part.grid
    if not grid.metric:
        return [f"### {_plain(grid.title)}", "No measurement has a value."]
    head = ["Frames", *grid.duts, *(["Line rate"] if part.line_rates else [])]
    rows = []
    for mix in grid.frames:
        line = [_figure(part.scale, part.line_rates[mix.name])] if part.line_rates else []
        rows.append([mix.name, *(_cell(cell, part.scale) for cell in grid.row(mix)), *line])
    title = f"### {_plain(grid.title)}: {_plain(metric_title(grid.metric))}, {_plain(part.scale.unit)}"
    legend = [_plain(f"{MARKS_LEGEND}.")] if any(cell.status in MARKS for cell in grid.cells.values()) else []
    note = [_plain(grid.rates_note)] if grid.rates_note else []
    return [title, table(head, rows, numbers_from=1), *note, *legend, *([_list(part.losses)] if part.losses else [])]


def _cell(cell: Cell | None, scale: Scale) -> str:
    if cell is None:
        return _NOTHING
    if cell.median is None:
        return str(cell.status)
    mark = f"{MARKS[cell.status]} " if cell.status in MARKS else ""
    spread = f" ({scale.aligned(min(cell.values))} … {scale.aligned(max(cell.values))})" if len(cell.values) > 1 else ""
    missing = f", {cell.without_figure} invalid" if cell.without_figure else ""
    return f"{mark}{scale.aligned(cell.median)}{spread}{missing}"


def _figure(scale: Scale, value: float | None) -> str:
    return _NOTHING if value is None else scale.aligned(value)


def _known(value: str | None) -> str:
    return _NOTHING if value is None else value


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {_plain(item)}" for item in items)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers_from: int | None = None) -> str:
    """Return a table; columns from `numbers_from` on are aligned to the right."""
    aligned = [numbers_from is not None and index >= numbers_from for index in range(len(head))]
    rule = ["--:" if right else "---" for right in aligned]
    texts = [" | ".join(map(_plain, head)), " | ".join(rule), *(" | ".join(map(_plain, row)) for row in rows)]
    return "\n".join(f"| {text} |" for text in texts)


def _plain(text: str) -> str:
    """Escape a text for Markdown, on one line."""
    return _SPECIAL.sub(r"\\\1", printable(" ".join(text.split())))
