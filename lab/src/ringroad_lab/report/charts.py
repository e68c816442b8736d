"""Charts as figures: plain data in a subset of Plotly's format, which `drawing` draws."""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ringroad_lab.comparison import RunComparison
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.grouping import grouped
from ringroad_lab.method.message_size import MESSAGES
from ringroad_lab.record import Curve, RunRecord
from ringroad_lab.report.drawing import draw
from ringroad_lab.report.figures import (
    MARKS,
    MARKS_LEGEND,
    Cell,
    Grid,
    dut_labels,
    frame_order,
    frames_text,
    has_figure,
    metric_title,
)
from ringroad_lab.report.quantity import Scale, percent_change, quantity, scale_for

# The colours of Okabe and Ito's palette for colour-blind readers that are visible on white and on black.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c8c8c")
_PAGE_WIDTH = 1160
_LONGEST_NAME = 70
_MOST_IN_LEGEND = 12
_MOST_POINTS = 1000
_MOST_LINE_TO_FIGURE = 3
# An axis is logarithmic from this ratio of its highest to its lowest value.
_LOGARITHMIC_FROM = 1000
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")


@dataclass(frozen=True)
class Chart:
    """A chart with its title and caption."""

    title: str
    figure: dict[str, Any]
    """`data` and `layout`; its texts are escaped."""
    caption: str = ""

    def svg(self, *, is_wide: bool = False) -> str:
        """Draw it over half of a page, or over all of it."""
        return draw(self.figure, _PAGE_WIDTH if is_wide else _PAGE_WIDTH // 2)


def style_index(record: RunRecord) -> dict[str, int]:
    """Return the style number of each device, so that the device has the same colour in all charts."""
    return {label: index for index, label in enumerate(dut_labels(record))}


def grid_chart(grid: Grid, styles: Mapping[str, int], link_bps: float | None) -> Chart:
    """Draw a headline metric by frame size: bars of the medians, with the range from the lowest to the highest repetition."""
    lines = {mix.name: grid.line_rate(mix, link_bps) for mix in grid.frames}
    greatest = max((value for cell in grid.cells.values() for value in cell.values), default=0.0)
    greatest_line = max((rate for rate in lines.values() if rate is not None), default=0.0)
    # Bars would look equally small beside links far faster than every device.
    is_cut = 0 < _MOST_LINE_TO_FIGURE * greatest < greatest_line
    scale = scale_for([greatest] if is_cut else [greatest, greatest_line], grid.unit)
    frames = [mix.name for mix in grid.frames]
    categories = _categories(frames)
    data: list[dict[str, Any]] = []
    for dut in grid.duts:
        cells = [grid.cells.get((dut, name)) for name in frames]
        # A cell without a value has room for its mark, but no bar.
        values = [None if cell is None else (cell.median or 0.0) / scale.divisor for cell in cells]
        above = [(max(cell.values) - (cell.median or 0)) / scale.divisor if cell and cell.values else 0 for cell in cells]
        below = [((cell.median or 0) - min(cell.values)) / scale.divisor if cell and cell.values else 0 for cell in cells]
        style = styles.get(dut, 0)
        data.append(
            {
                "type": "bar",
                "name": _name(dut),
                "x": categories,
                "y": values,
                "error_y": {"type": "data", "array": above, "arrayminus": below},
                "marker": {"color": _colour(style)},
                "text": ["" if cell is None else _mark(cell) for cell in cells],
                "hovertext": [
                    ""
                    if cell is None
                    else _plain(f"{dut}, {frames_text(name)}: {_value_text(cell.median, lines[name], grid.unit)} ({cell.status})")
                    for name, cell in zip(frames, cells, strict=True)
                ],
            }
        )
    if any(rate is not None for rate in lines.values()):
        rates = [None if lines[name] is None else (lines[name] or 0) / scale.divisor for name in frames]
        symbol = {"symbol": "line-ew-open", "size": 46, "color": "#8c8c8c"}
        data.append({"type": "scatter", "mode": "markers", "name": "line rate", "x": categories, "y": rates, "marker": symbol})
    what = metric_title(grid.metric) if grid.metric else grid.title
    sizes = "" if MESSAGES in grid.frames else "frame size, bytes"
    layout = _layout(sizes, f"{what}, {scale.unit}") | {"barmode": "group", "bargap": 0.25 if len(frames) > 2 else 0.6}
    layout["xaxis"] |= {"type": "category"}
    if is_cut:
        layout["yaxis"] |= {"range": [0, 1.25 * greatest / scale.divisor]}
    return Chart(
        f"{what} in {scale.unit}",
        {"data": data, "layout": layout},
        f"Medians of the repetitions; the lines span the lowest to the highest. {MARKS_LEGEND}, \u00d7 a missing value."
        + (" Line rates beyond the axis are in the table." if is_cut else ""),
    )


def latency_charts(record: RunRecord, styles: Mapping[str, int]) -> list[Chart]:
    """Draw the latency percentiles of all devices: one chart for each topology and frame size."""
    lines = latency_lines(record)
    scale = latency_scale(lines)
    loads = list(dict.fromkeys(line.load for line in lines))
    groups = grouped(lines, lambda line: (line.topology, line.frame))
    charts = []
    for (topology, frame), members in groups.items():
        percentiles = sorted({percentile for line in members for percentile in line.percentiles_ns})
        data = [
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": _name(f"{line.dut}, {line.load_text}" if len(loads) > 1 else line.dut),
                "x": [f"{percentile:g} %" for percentile in line.percentiles_ns],
                "y": [value / scale.divisor for value in line.percentiles_ns.values()],
                **_line_style(styles.get(line.dut, 0), loads.index(line.load)),
            }
            for line in members
        ]
        layout = _layout("share of the frames with at most this latency", f"one-way latency, {scale.unit}")
        layout["xaxis"] |= {"type": "category", "categoryorder": "array", "categoryarray": [f"{each:g} %" for each in percentiles]}
        layout["yaxis"] |= {"type": "log", "rangemode": "normal"}
        load = f" {loads[0].removeprefix('latency ')}" if len(loads) == 1 else ""
        title = f"Latency percentiles{load}, {frames_text(frame)} ({topology})"
        charts.append(Chart(title, {"data": data, "layout": layout}, "Medians of the repetitions, on a logarithmic scale."))
    return charts


@dataclass(frozen=True)
class LatencyLine:
    """The latency of a device at one frame size and load."""

    topology: str
    dut: str
    frame: str
    load: str
    """Name of the curve: `latency at 50 % of throughput`."""
    percentiles_ns: dict[float, float]
    """Median of the repetitions by percentile, in order."""

    @property
    def load_text(self) -> str:
        """Label for people."""
        return self.load.removeprefix("latency ")


def latency_lines(record: RunRecord) -> list[LatencyLine]:
    """Return the latency percentiles, sorted by topology, frame size, load and device."""
    groups: dict[tuple[str, FrameMix, str, str], dict[float, list[float]]] = {}
    for m in record.measurements:
        for curve in m.outcome.curves:
            if has_figure(m) and not m.is_noise_floor and is_latency(curve) and curve.points:
                by_percentile = groups.setdefault((m.topology, m.frame, curve.name, m.dut), {})
                for percentile, value in curve.points:
                    by_percentile.setdefault(percentile, []).append(value)
    topologies, loads = (list(dict.fromkeys(key[place] for key in groups)) for place in (0, 2))
    duts = dut_labels(record)

    def place(key: tuple[str, FrameMix, str, str]) -> tuple[int, tuple[int, float], int, int]:
        topology, frame, load, dut = key
        return topologies.index(topology), frame_order(frame), loads.index(load), duts.index(dut)

    return [
        LatencyLine(
            topology, dut, frame.name, load, {percentile: statistics.median(values) for percentile, values in sorted(groups[key].items())}
        )
        for key in sorted(groups, key=place)
        for topology, frame, load, dut in (key,)
    ]


def latency_scale(lines: Sequence[LatencyLine]) -> Scale:
    """Return a scale that suits the lowest latency: the other numbers are not much longer."""
    return scale_for([min(value for line in lines for value in line.percentiles_ns.values())] if lines else [], "ns")


def is_latency(curve: Curve) -> bool:
    """Return whether the curve is latency by percentile."""
    return (curve.x_name, curve.y_unit) == ("percentile", "ns")


def curve_charts(record: RunRecord, styles: Mapping[str, int]) -> list[Chart]:
    """Draw the curves of all measurements: one chart for each topology, method, name and frame size."""
    # Latency percentiles have their own charts.
    drawn = [
        (m, curve) for m in record.measurements for curve in m.outcome.curves if curve.points and has_figure(m) and not is_latency(curve)
    ]
    groups = grouped(drawn, lambda each: (each[0].topology, each[0].method, each[1].name, each[0].frame.name))
    charts = []
    duts = dut_labels(record)
    kinds = list(dict.fromkeys(key[:3] for key in groups))
    in_order = sorted(groups.items(), key=lambda item: (kinds.index(item[0][:3]), frame_order(item[1][0][0].frame)))
    for (topology, method, name, frame), members in in_order:
        # Order of the devices, not of their measurements.
        members.sort(key=lambda member: duts.index(member[0].dut))
        first = members[0][1]
        places = [x for _, curve in members for x, _ in curve.points]
        x_scale = scale_for(places, first.x_unit)
        y_scale = scale_for([y for _, curve in members for _, y in curve.points], first.y_unit)
        data = [
            {
                "type": "scatter",
                "mode": "lines" if len(repetitions) > 1 else "lines+markers",
                "name": _name(dut),
                "showlegend": index == 0,
                "x": [x / x_scale.divisor for x, _ in sorted(curve.points)],
                "y": [y / y_scale.divisor for _, y in sorted(curve.points)],
                **_line_style(styles.get(dut, 0), 0),
                # Repetitions overlap and form one band.
                "opacity": 0.6 if len(repetitions) > 1 else 1,
            }
            for dut, repetitions in grouped(members, lambda member: member[0].dut).items()
            for index, (_, curve) in enumerate(repetitions)
        ]
        layout = _layout(f"{first.x_name}, {x_scale.unit}", f"{first.y_name}, {y_scale.unit}")
        if min(places) > 0 and max(places) >= _LOGARITHMIC_FROM * min(places):
            layout["xaxis"] |= {"type": "log"}
        title = f"{metric_title(name)} by {first.x_name}, {frames_text(frame)} ({method}, {topology})"
        charts.append(Chart(title, {"data": data, "layout": layout}))
    return charts


def series_charts(record: RunRecord) -> list[Chart]:
    """Draw the series over time: one chart for each name, one line for each process or machine."""
    groups = grouped((series for series in record.series if series.points), lambda series: (series.name, series.unit))
    charts = []
    for (name, unit), members in groups.items():
        scale = scale_for([value for series in members for _, value in series.points], unit)
        data = []
        for index, series in enumerate(members):
            points = list(_thinned(series.points))
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": _name(series.subject),
                    "x": [round(time - record.started_at, 3) for time, _ in points],
                    "y": [float(f"{value / scale.divisor:.6g}") for _, value in points],
                    "line": {"color": _colour(index), "width": 1.5, "shape": "hv"},
                }
            )
        title = name[:1].upper() + name[1:]
        layout = _layout("time since the start, s", f"{name}, {scale.unit}")
        layout |= {"showlegend": 1 < len(members) <= _MOST_IN_LEGEND}
        caption = f"{len(members)} lines: point at a line to see its name." if len(members) > _MOST_IN_LEGEND else ""
        charts.append(Chart(title if len(members) > 1 else f"{title} of {members[0].subject}", {"data": data, "layout": layout}, caption))
    return charts


def _thinned(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield means of consecutive points, so that a line of many hours has at most `_MOST_POINTS` points."""
    size = math.ceil(len(points) / _MOST_POINTS)
    for start in range(0, len(points), size):
        part = points[start : start + size]
        yield part[0][0], statistics.fmean(value for _, value in part)


def comparison_chart(comparison: RunComparison) -> Chart | None:
    """Draw the change of each headline metric with its interval, over the noise floor of the setup."""
    rows = [row for row in comparison.rows if row.is_headline and row.comparison.ratio is not None]
    if not rows:
        return None
    many = len({row.key.topology for row in rows}) > 1
    names = _categories(f"{row.key.dut}, {row.key.method}, {frames_text(row.key.frame)}{f', {row.key.topology}' * many}" for row in rows)
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
            },
            "marker": {"size": 8, "color": COLOURS[0]},
            "hovertext": [f"{name}: {percent_change(row.comparison.ratio or 1)}" for name, row in zip(names, rows, strict=True)],
        },
    ]
    layout = _layout("change to the baseline, %", "") | {"barmode": "overlay", "height": 150 + 26 * len(rows)}
    layout["yaxis"] |= {"type": "category"}
    # Without its 0 an axis of changes shows neither their sign nor their size.
    layout["xaxis"] |= {"rangemode": "tozero"}
    return Chart("Change of the headline metrics", {"data": data, "layout": layout})


def _layout(x_title: str, y_title: str) -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": _name(x_title)}},
        "yaxis": {"title": {"text": _name(y_title)}, "rangemode": "tozero"},
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
    return "\u00d7" if cell.median is None else MARKS.get(cell.status, "")


def _value_text(value: float | None, line_rate: float | None, unit: str) -> str:
    if value is None:
        return "no value"
    return quantity(value, unit) + (f", {100 * value / line_rate:.3g} % of the line rate" if line_rate else "")


def _name(text: str) -> str:
    """Return the name of a line, shortened to fit a legend."""
    return _plain(text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}\u2026")


def _categories(texts: Iterable[str]) -> list[str]:
    """Return short and unique names for the categories of an axis, which tells them apart by name."""
    names: list[str] = []
    for text in texts:
        name = _name(text)
        names.append(name if name not in names else f"{name} ({len(names) + 1})")
    return names


def _plain(text: str) -> str:
    """Escape a text for the page."""
    return html.escape(text, quote=False)
