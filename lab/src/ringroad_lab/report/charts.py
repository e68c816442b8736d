"""Charts as Plotly's figures: plain data, drawn in the browser, where the theme gives the colours of text and lines."""

from __future__ import annotations

import html
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ringroad_lab.comparison import RunComparison
from ringroad_lab.record import Curve, Measurement, MeasurementStatus, RunRecord, Series
from ringroad_lab.report.findings import FRAME_RATE, Cell, Grid, frames_text, has_figure, metric_title
from ringroad_lab.report.quantity import Scale, percent_change, quantity, scale_for

# Of Okabe and Ito's palette, which colour-blind people tell apart, those that are seen on white and on black.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c8c8c")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")


@dataclass(frozen=True)
class Chart:
    """A chart, with words for those who do not see it."""

    title: str
    figure: dict[str, Any]
    """`data` and `layout` of Plotly; its texts are escaped."""
    caption: str = ""

    @property
    def json(self) -> str:
        """The figure, as JSON that can stand in a page."""
        text = json.dumps(self.figure, allow_nan=False, separators=(",", ":"))
        return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def style_index(record: RunRecord) -> dict[str, int]:
    """Return the number of each device: it has the same colour everywhere."""
    return {dut.label: index for index, dut in enumerate(record.duts)}


def grid_chart(grid: Grid, styles: Mapping[str, int], link_bps: float | None) -> Chart:
    """Draw a headline metric by frame size: bars of the medians, from the least to the greatest repetition."""
    medians = [cell.median or 0.0 for cell in grid.cells.values()]
    lines = {mix.name: _line_rate(grid, mix.name, link_bps) for mix in grid.frames}
    scale = scale_for([*medians, *(rate for rate in lines.values() if rate is not None)], grid.unit)
    frames = [mix.name for mix in grid.frames]
    data: list[dict[str, Any]] = []
    for dut in grid.duts:
        cells = [grid.cells.get((dut, name)) for name in frames]
        # What has no figure has a place for its mark, and no bar.
        values = [None if cell is None else (cell.median or 0.0) / scale.divisor for cell in cells]
        above = [(max(cell.values) - (cell.median or 0)) / scale.divisor if cell and cell.values else 0 for cell in cells]
        below = [((cell.median or 0) - min(cell.values)) / scale.divisor if cell and cell.values else 0 for cell in cells]
        style = styles.get(dut, 0)
        data.append(
            {
                "type": "bar",
                "name": _plain(dut),
                "x": [_plain(name) for name in frames],
                "y": values,
                "error_y": {"type": "data", "array": above, "arrayminus": below, "thickness": 1, "width": 3, "color": "#8c8c8c"},
                "marker": {"color": _colour(style)},
                "text": ["" if cell is None else _mark(cell) for cell in cells],
                "textposition": "outside",
                "cliponaxis": False,
                "hovertext": [
                    ""
                    if cell is None
                    else _plain(f"{dut}, frames {cell.frame.name}: {_value_text(cell.median, grid.unit)} ({cell.status})")
                    for cell in cells
                ],
                "hoverinfo": "text",
            }
        )
    if any(rate is not None for rate in lines.values()):
        rates = [None if lines[name] is None else (lines[name] or 0) / scale.divisor for name in frames]
        symbol = {"symbol": "line-ew-open", "size": 46, "color": "#8c8c8c", "line": {"width": 2, "color": "#8c8c8c"}}
        data.append(
            {"type": "scatter", "mode": "markers", "name": "line rate", "x": [_plain(n) for n in frames], "y": rates, "marker": symbol}
        )
    what = metric_title(grid.metric) if grid.metric else grid.title
    layout = _layout("frame size, bytes", f"{what}, {scale.unit}") | {"barmode": "group", "bargap": 0.25 if len(frames) > 2 else 0.6}
    layout["xaxis"] |= {"type": "category"}
    return Chart(
        f"{what} in {scale.unit}",
        {"data": data, "layout": layout},
        "Medians of the repetitions; the lines reach from the least to the greatest. \u2265 marks a lower bound, ? an inconclusive figure, "
        "\u00d7 that there is none.",
    )


def latency_chart(record: RunRecord, styles: Mapping[str, int]) -> Chart | None:
    """Draw the latency's percentiles of each device, frame size and load; None where none was measured."""
    lines = latency_lines(record)
    if not lines:
        return None
    scale = latency_scale(lines)
    percentiles = sorted({percentile for line in lines for percentile in line.percentiles_ns})
    variants = list(dict.fromkeys((line.frame, line.load) for line in lines))
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": _plain(line.title),
            "x": [f"{percentile:g} %" for percentile in line.percentiles_ns],
            "y": [value / scale.divisor for value in line.percentiles_ns.values()],
            **_line_style(styles.get(line.dut, 0), variants.index((line.frame, line.load))),
        }
        for line in lines
    ]
    layout = _layout("part of the frames that were at least as fast", f"one-way latency, {scale.unit}")
    layout["xaxis"] |= {"type": "category", "categoryorder": "array", "categoryarray": [f"{percentile:g} %" for percentile in percentiles]}
    layout["yaxis"] |= {"type": "log", "rangemode": "normal"}
    return Chart("Latency percentiles", {"data": data, "layout": layout}, "The medians of the repetitions. The scale is logarithmic.")


@dataclass(frozen=True)
class LatencyLine:
    """The latency of a device with one frame size at one load."""

    dut: str
    frame: str
    load: str
    """As the method names it: `latency at 50 % of throughput`."""
    percentiles_ns: dict[float, float]
    """Median of the repetitions by percentile, in order."""

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.dut}, {self.frame}, {self.load.removeprefix('latency ')}"


def latency_lines(record: RunRecord) -> list[LatencyLine]:
    """Return the latencies that have percentiles."""
    groups: dict[tuple[str, str, str], dict[float, list[float]]] = {}
    for measurement in record.measurements:
        for curve in measurement.outcome.curves:
            if has_figure(measurement) and is_latency(curve):
                by_percentile = groups.setdefault((measurement.dut, measurement.frame.name, curve.name), {})
                for percentile, value in curve.points:
                    by_percentile.setdefault(percentile, []).append(value)
    return [
        LatencyLine(dut, frame, load, {percentile: statistics.median(values) for percentile, values in sorted(found.items())})
        for (dut, frame, load), found in groups.items()
        if found
    ]


def latency_scale(lines: Sequence[LatencyLine]) -> Scale:
    """Return the scale in which the least latency reads well: the others are not far longer numbers."""
    return scale_for([min(value for line in lines for value in line.percentiles_ns.values())] if lines else [], "ns")


def is_latency(curve: Curve) -> bool:
    """Whether it is of latency by percentile."""
    return (curve.x_name, curve.y_unit) == ("percentile", "ns")


def curve_charts(record: RunRecord, styles: Mapping[str, int]) -> list[Chart]:
    """Draw the curves of all measurements; those of one method, name and frame size together."""
    groups: dict[tuple[str, str, str, str], list[tuple[Measurement, Curve]]] = {}
    for measurement in record.measurements:
        for curve in measurement.outcome.curves:
            # Latency by percentile has a chart of its own, of all devices.
            if curve.points and has_figure(measurement) and not is_latency(curve):
                key = (measurement.topology, measurement.method, curve.name, measurement.frame.name)
                groups.setdefault(key, []).append((measurement, curve))
    charts = []
    for (topology, method, name, frame), members in groups.items():
        first = members[0][1]
        x_scale = scale_for([x for _, curve in members for x, _ in curve.points], first.x_unit)
        y_scale = scale_for([y for _, curve in members for _, y in curve.points], first.y_unit)
        data = []
        told: set[str] = set()
        repeated = {measurement.dut for measurement, _ in members if sum(other.dut == measurement.dut for other, _ in members) > 1}
        for measurement, curve in members:
            points = sorted(curve.points)
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines" if measurement.dut in repeated else "lines+markers",
                    "name": _plain(measurement.dut),
                    "legendgroup": _plain(measurement.dut),
                    "showlegend": measurement.dut not in told,
                    "x": [x / x_scale.divisor for x, _ in points],
                    "y": [y / y_scale.divisor for _, y in points],
                    **_line_style(styles.get(measurement.dut, 0), 0),
                    # Repetitions lie over each other, and are one band.
                    "opacity": 0.6 if measurement.dut in repeated else 1,
                }
            )
            told.add(measurement.dut)
        layout = _layout(f"{first.x_name}, {x_scale.unit}", f"{first.y_name}, {y_scale.unit}")
        title = f"{metric_title(name)} by {first.x_name}, {frames_text(frame)} ({method}, {topology})"
        charts.append(Chart(title, {"data": data, "layout": layout}))
    return charts


def series_charts(record: RunRecord) -> list[Chart]:
    """Draw the figures over time; those of one name together, a line for each process or machine."""
    groups: dict[tuple[str, str], list[Series]] = {}
    for series in record.series:
        if series.points:
            groups.setdefault((series.name, series.unit), []).append(series)
    charts = []
    for (name, unit), members in groups.items():
        scale = scale_for([value for series in members for _, value in series.points], unit)
        data = [
            {
                "type": "scatter",
                "mode": "lines",
                "name": _plain(series.subject),
                "x": [time - record.started_at for time, _ in series.points],
                "y": [value / scale.divisor for _, value in series.points],
                "line": {"color": _colour(index), "width": 1.5, "shape": "hv"},
            }
            for index, series in enumerate(members)
        ]
        title = name[:1].upper() + name[1:]
        charts.append(Chart(title, {"data": data, "layout": _layout("time since the start, s", f"{name}, {scale.unit}")}))
    return charts


def comparison_chart(comparison: RunComparison) -> Chart | None:
    """Draw the change of each headline metric with its interval, over the noise of the setup."""
    rows = [row for row in comparison.rows if row.is_headline and row.comparison.ratio is not None]
    if not rows:
        return None
    names = [_plain(f"{row.key.dut}, {row.key.method}, {frames_text(row.key.frame)}") for row in rows]
    changes = [100 * ((row.comparison.ratio or 1) - 1) for row in rows]
    intervals = [row.comparison.interval or (row.comparison.ratio or 1,) * 2 for row in rows]
    floors = [(name, row.noise_floor) for name, row in zip(names, rows, strict=True) if row.noise_floor]
    data: list[dict[str, Any]] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": "noise of this setup",
            "y": [name for name, _ in floors],
            "base": [100 * (low - 1) for _, (low, _) in floors],
            "x": [100 * (high - low) for _, (low, high) in floors],
            "marker": {"color": "rgba(128,128,128,0.25)"},
            "hoverinfo": "skip",
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "change, with its interval",
            "y": names,
            "x": changes,
            "error_x": {
                "type": "data",
                "array": [100 * (high - 1) - change for change, (_, high) in zip(changes, intervals, strict=True)],
                "arrayminus": [change - 100 * (low - 1) for change, (low, _) in zip(changes, intervals, strict=True)],
                "thickness": 1.5,
                "width": 4,
            },
            "marker": {"size": 8, "color": COLOURS[0]},
            "hovertext": [f"{name}: {percent_change(row.comparison.ratio or 1)}" for name, row in zip(names, rows, strict=True)],
            "hoverinfo": "text",
        },
    ]
    layout = _layout("change to the baseline, %", "") | {"barmode": "overlay", "height": 150 + 26 * len(rows)}
    layout["yaxis"] |= {"type": "category", "autorange": "reversed", "showgrid": False}
    layout["xaxis"] |= {"zeroline": True, "showgrid": True}
    return Chart("Change of the headline metrics", {"data": data, "layout": layout})


def _layout(x_title: str, y_title: str) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": _plain(x_title)}, "automargin": True},
        "yaxis": {"title": {"text": _plain(y_title)}, "automargin": True, "rangemode": "tozero"},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        "margin": {"l": 56, "r": 16, "t": 24, "b": 48},
        "height": 360,
    }


def _line_style(style: int, dash: int) -> dict[str, Any]:
    dashes = ("solid", "dot", "dash", "dashdot", "longdash")
    return {
        "line": {"color": _colour(style), "width": 1.5, "dash": dashes[dash % len(dashes)]},
        "marker": {"symbol": _SYMBOLS[style % len(_SYMBOLS)], "size": 7, "color": _colour(style)},
    }


def _colour(style: int) -> str:
    return COLOURS[style % len(COLOURS)]


def _mark(cell: Cell) -> str:
    if cell.median is None:
        return "\u00d7"
    return {MeasurementStatus.LOWER_BOUND: "\u2265", MeasurementStatus.INCONCLUSIVE: "?"}.get(cell.status, "")


def _value_text(value: float | None, unit: str) -> str:
    return "no figure" if value is None else quantity(value, unit)


def _line_rate(grid: Grid, frame: str, link_bps: float | None) -> float | None:
    mix = next(mix for mix in grid.frames if mix.name == frame)
    if link_bps is None:
        return None
    if grid.unit == FRAME_RATE:
        return mix.line_rate_fps(link_bps)
    return mix.line_rate_fps(link_bps) * 8 * mix.mean_bytes if grid.unit == "bit/s" else None


def _plain(text: str) -> str:
    """Return a text that Plotly shows as it is: it reads some HTML."""
    return html.escape(text, quote=False)
