"""Draws figures as SVG, so that a report needs no chart library in the browser. The page's style sheet sets the colours of text and lines.

A figure is plain data in a subset of Plotly's format: bars, scatter traces with lines and markers, error bars, linear, logarithmic and
category axes. Its texts are escaped already; they are used as text only, never in an attribute.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_CHARACTER = 6.4
"""Rough width of a character."""
_LINE = 18
_TICKS = 7
# Axes end at this value, and have at least this width, relative to their values: floating-point numbers do not carry more.
_GREATEST, _NARROWEST = 1e300, 1e-9
_SLANT = math.radians(30)
_LONGEST_SLANTED = 22
_DASHES = {"dot": "1.5 3", "dash": "6 3", "dashdot": "6 3 1.5 3", "longdash": "11 4"}
# Paths of the markers around their centre, for a size of 2.
_SYMBOLS = {
    "circle": "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0z",
    "square": "M-.9-.9h1.8v1.8h-1.8z",
    "diamond": "M0-1.3L1.3 0L0 1.3L-1.3 0z",
    "triangle-up": "M0-1.2L1.1 .8H-1.1z",
    "cross": "M-.4-1.2h.8v.8h.8v.8h-.8v.8h-.8v-.8h-.8v-.8h.8z",
    "x": "M-1-.6L-.6-1L0-.4L.6-1L1-.6L.4 0L1 .6L.6 1L0 .4L-.6 1L-1 .6L-.4 0z",
    "star": "M0-1.3L.35-.4L1.25-.4L.5.2L.8 1.1L0 .55L-.8 1.1L-.5.2L-1.25-.4L-.35-.4z",
    "line-ew-open": "M-1 0H1",
}
Trace = Mapping[str, Any]


@dataclass
class _Axis:
    """Maps values of one axis to places."""

    title: str
    kind: str
    low: float
    high: float
    categories: list[str] = field(default_factory=list)
    start: float = 0.0
    end: float = 1.0

    def at(self, value: Any) -> float:  # noqa: ANN401 - a number or a category
        """Return the place of a value."""
        return self.place(self.categories.index(value) if self.categories else float(value))

    def place(self, number: float) -> float:
        """Return the place of a number, or of the number of a category."""
        low, high, number = map(math.log10, (self.low, self.high, number)) if self.kind == "log" else (self.low, self.high, number)
        return self.start + (number - low) / (high - low) * (self.end - self.start)

    def has(self, value: Any) -> bool:  # noqa: ANN401
        """Return whether a value lies within the axis."""
        return bool(self.categories) or (value is not None and self.low <= value <= self.high)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Yield the place and the label of each tick."""
        if self.categories:
            yield from ((self.place(number), name) for number, name in enumerate(self.categories))
        else:
            found = _decades(self.low, self.high) if self.kind == "log" else _steps(self.low, self.high)
            yield from ((self.place(value), f"{value:,.6g}".replace(",", "\u202f").replace("-", "\u2212")) for value in found)


def _steps(low: float, high: float) -> Iterator[float]:
    """Yield round numbers from low to high."""
    rough = (high - low) / _TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
        yield number * step


def _decades(low: float, high: float) -> Iterator[float]:
    """Yield powers of ten from low to high, or more numbers if there are few of these."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    each = math.ceil((last - first) / 8)
    for exponent in range(first, last + 1, each):
        yield from (value for factor in factors if low <= (value := factor * 10.0**exponent) <= high)


def draw(figure: Mapping[str, Any], width: int) -> str:
    """Draw a figure of this width; return an SVG element."""
    layout, traces = figure["layout"], figure["data"]
    height = layout["height"]
    x, y = (_axis(layout[f"{name}axis"], name, traces) for name in ("x", "y"))
    legend = list(_legend(layout, traces, width))
    left = 16 + max(_widths(y), default=0) + (_LINE if y.title else 0)
    left = min(left, 0.45 * width)
    slot = (width - left) / max(1, len(x.categories))
    is_slanted = any(own > slot for own in _widths(x)) and bool(x.categories)
    below = math.sin(_SLANT) * _CHARACTER * _LONGEST_SLANTED if is_slanted else 0
    x.start, x.end = left, width - 14
    y.start, y.end = height - 26 - below - (_LINE if x.title else 0), 14 + _LINE * (1 + max((row for row, _, _ in legend), default=-1))
    if y.categories:
        # The first category is at the top.
        y.start, y.end = y.end, y.start
    parts = [f'<svg class="chart" viewBox="0 0 {width} {height}" style="min-width:{min(width, 420)}px">']
    for row, at, trace in legend:
        parts.append(f'<g transform="translate({at:.0f} {12 + _LINE * row})">{_sample(trace)}<text x="26" y="4">{trace["name"]}</text></g>')
    parts += _frame(x, y, left, is_slanted=is_slanted)
    bars = [trace for trace in traces if trace["type"] == "bar"]
    for number, trace in enumerate(bars):
        parts += _flat_bars(trace, x, y) if trace.get("orientation") == "h" else _bars(trace, x, y, layout, number, len(bars))
    for trace in traces:
        if trace["type"] == "scatter":
            parts += _scatter(trace, x, y)
    return "".join([*parts, "</svg>"])


def _widths(axis: _Axis) -> list[float]:
    return [_width(label) for _, label in axis.ticks()]


def _axis(spec: Mapping[str, Any], name: str, traces: Sequence[Trace]) -> _Axis:
    """Make an axis that all traces fit on."""
    title, kind = spec["title"]["text"], spec.get("type", "linear")
    if kind == "category":
        seen = dict.fromkeys([*spec.get("categoryarray", ()), *(value for trace in traces for value in trace[name])])
        return _Axis(title, kind, -0.5, max(1, len(seen)) - 0.5, list(seen))
    if "range" in spec:
        return _Axis(title, kind, *spec["range"])
    values = [value for trace in traces for value in _reach(trace, name) if value is not None and abs(value) <= _GREATEST]
    if kind == "log":
        values = [value for value in values if value > 0] or [1.0]
        # Room for the markers at both ends.
        return _Axis(title, kind, min(values) / 1.2, max(values) * 1.2)
    if spec.get("rangemode") == "tozero":
        values.append(0.0)
    low, high = min(values, default=0.0), max(values, default=0.0)
    room = 0.06 * (high - low)
    if room <= _NARROWEST * max(abs(low), abs(high), _NARROWEST):
        room = max(abs(high), 1.0)
    return _Axis(title, kind, low - room * (low < 0), high + room * (high > 0 or low >= high))


def _reach(trace: Trace, name: str) -> Iterator[float | None]:
    """Yield the values of a trace with the ends of their error bars; bars reach from their base."""
    values = [(value or 0.0) + base for value, base in zip(trace[name], trace["base"], strict=True)] if "base" in trace else trace[name]
    yield from trace.get("base", ())
    yield from values
    if bars := trace.get(f"error_{name}"):
        for value, above, below in zip(values, bars["array"], bars["arrayminus"], strict=True):
            if value is not None:
                yield from (value + above, value - below)


def _legend(layout: Mapping[str, Any], traces: Sequence[Trace], width: int) -> Iterator[tuple[int, float, Trace]]:
    """Yield row, place and trace of each entry; a single trace needs none."""
    shown = [trace for trace in traces if trace.get("showlegend", True)]
    if not layout.get("showlegend", len(shown) > 1):
        return
    row, at = 0, 8.0
    for trace in shown:
        needed = 40 + _width(trace["name"])
        if at > 8 and at + needed > width:
            row, at = row + 1, 8.0
        yield row, at, trace
        at += needed


def _sample(trace: Trace) -> str:
    """Draw the entry of a trace in the legend."""
    marker = trace.get("marker", {})
    line = trace.get("line") if "lines" in trace.get("mode", "") else None
    drawn = f'<path d="M0 0H20"{_stroke(line)}/>' if line else ""
    if trace["type"] == "bar":
        return _rect(4, -6, 16, 6, marker["color"])
    return drawn + (_marker({**marker, "size": min(marker["size"], 16)}, 10, 0) if "markers" in trace["mode"] else "")


def _frame(x: _Axis, y: _Axis, left: float, *, is_slanted: bool) -> Iterator[str]:
    """Draw grid lines, labels and titles."""
    bottom, top = max(y.start, y.end), min(y.start, y.end)
    for at, label in x.ticks():
        if not x.categories:
            yield f'<path class="grid" d="M{at:.1f} {top:.1f}V{bottom:.1f}"/>'
        if is_slanted:
            yield _text(at, bottom + 14, _cut(label, _LONGEST_SLANTED), "end", angle=-30)
        else:
            yield _text(at, bottom + 17, label, kind="xtick")
    room = int((left - 16 - (_LINE if y.title else 0)) / _CHARACTER)
    for at, label in y.ticks():
        if not y.categories:
            yield f'<path class="grid" d="M{x.start:.1f} {at:.1f}H{x.end:.1f}"/>'
        yield _text(x.start - 6, at + 4, _cut(label, room) if y.categories else label, "end")
    # The lines at 0 are the ends of bars, and what changes are compared with.
    if _has_zero(x):
        yield f'<path class="zero" d="M{x.place(0):.1f} {top:.1f}V{bottom:.1f}"/>'
    if _has_zero(y):
        yield f'<path class="zero" d="M{x.start:.1f} {y.place(0):.1f}H{x.end:.1f}"/>'
    if x.title:
        below = math.sin(_SLANT) * _CHARACTER * _LONGEST_SLANTED if is_slanted else 0
        yield _text((x.start + x.end) / 2, bottom + 17 + _LINE + below, x.title)
    if y.title:
        yield _text(12, (bottom + top) / 2, y.title, angle=-90)


def _has_zero(axis: _Axis) -> bool:
    return axis.kind == "linear" and axis.low <= 0 <= axis.high


def _cut(label: str, most: int) -> str:
    text = html.unescape(label)
    return label if len(text) <= most else f"{html.escape(text[: max(1, most - 1)], quote=False)}\u2026<title>{label}</title>"


def _width(label: str) -> float:
    return _CHARACTER * len(html.unescape(label))


def _bars(trace: Trace, x: _Axis, y: _Axis, layout: Mapping[str, Any], number: int, of: int) -> Iterator[str]:
    """Draw a device's bars in the groups of their categories, with their marks and error bars."""
    share = (1 - layout["bargap"]) / of
    thick = share * (x.end - x.start) / len(x.categories)
    for index, (category, value) in enumerate(zip(trace["x"], trace["y"], strict=True)):
        if value is None:
            continue
        at = x.place(x.categories.index(category) - (1 - layout["bargap"]) / 2 + share * (number + 0.5))
        least, most = value - trace["error_y"]["arrayminus"][index], min(value + trace["error_y"]["array"][index], y.high)
        title = f"<title>{trace['hovertext'][index]}</title>"
        yield _rect(at - thick / 2, y.place(min(value, y.high)), at + thick / 2, y.start, trace["marker"]["color"], title)
        if most > least:
            yield _error_bar(at, y.place(least), at, y.place(most))
        if mark := trace["text"][index]:
            yield _text(at, y.place(most) - 4, mark, kind="mark")


def _flat_bars(trace: Trace, x: _Axis, y: _Axis) -> Iterator[str]:
    """Draw bands from their base to the right."""
    half = 0.4 * abs(y.end - y.start) / len(y.categories)
    for category, base, length in zip(trace["y"], trace["base"], trace["x"], strict=True):
        yield _rect(x.place(base), y.at(category) - half, x.place(base + length), y.at(category) + half, trace["marker"]["color"])


def _scatter(trace: Trace, x: _Axis, y: _Axis) -> Iterator[str]:
    """Draw a line, its markers and their error bars."""
    points = [
        (index, x.at(at), y.at(value))
        for index, (at, value) in enumerate(zip(trace["x"], trace["y"], strict=True))
        if _is_on(at, value, x, y)
    ]
    yield f'<g opacity="{trace.get("opacity", 1)}">'
    if "lines" in trace["mode"] and points:
        path = _path(((at, value) for _, at, value in points), is_stepped=trace["line"].get("shape") == "hv")
        yield f'<path d="{path}"{_stroke(trace["line"])}><title>{trace["name"]}</title></path>'
    if "markers" in trace["mode"]:
        for index, at, value in points:
            if bars := trace.get("error_x"):
                number = trace["x"][index]
                yield _error_bar(x.place(number - bars["arrayminus"][index]), value, x.place(number + bars["array"][index]), value)
            text = trace["hovertext"][index] if "hovertext" in trace else f"{trace['name']}: {trace['x'][index]}, {trace['y'][index]:.6g}"
            yield _marker(trace["marker"], at, value, f"<title>{text}</title>")
    yield "</g>"


def _is_on(at: Any, value: Any, x: _Axis, y: _Axis) -> bool:  # noqa: ANN401
    return at is not None and value is not None and x.has(at) and y.has(value)


def _text(at: float, value: float, content: str, anchor: str = "middle", *, kind: str = "", angle: int = 0) -> str:
    place = f'transform="translate({at:.1f} {value:.1f}) rotate({angle})"' if angle else f'x="{at:.1f}" y="{value:.1f}"'
    is_of = f' class="{kind}"' if kind else ""
    return f'<text {place} text-anchor="{anchor}"{is_of}>{content}</text>'


def _rect(x0: float, y0: float, x1: float, y1: float, colour: str, content: str = "") -> str:
    return f'<rect x="{x0:.1f}" y="{y0:.1f}" width="{x1 - x0:.1f}" height="{y1 - y0:.1f}" fill="{colour}">{content}</rect>'


def _path(points: Iterable[tuple[float, float]], *, is_stepped: bool) -> str:
    (at, value), *rest = points
    steps = [f"M{at:.1f} {value:.1f}"]
    steps += [f"H{at:.1f}V{value:.1f}" if is_stepped else f"L{at:.1f} {value:.1f}" for at, value in rest]
    return "".join(steps)


def _stroke(line: Mapping[str, Any]) -> str:
    dash = f' stroke-dasharray="{_DASHES[line["dash"]]}"' if line.get("dash", "solid") != "solid" else ""
    return f' fill="none" stroke="{line["color"]}" stroke-width="{line["width"]}"{dash}'


def _marker(marker: Mapping[str, Any], at: float, value: float, content: str = "") -> str:
    symbol, half = marker.get("symbol", "circle"), marker["size"] / 2
    paint = f'stroke="{marker["color"]}" stroke-width="{2 / half:.2g}"' if symbol.endswith("-open") else f'fill="{marker["color"]}"'
    return f'<path transform="translate({at:.1f} {value:.1f}) scale({half:g})" d="{_SYMBOLS[symbol]}" {paint}>{content}</path>'


def _error_bar(x0: float, y0: float, x1: float, y1: float) -> str:
    """Draw a line with crossbars at its ends."""
    across = "v6m0-6" if y0 == y1 else "h6m-6 0"
    back = "m0-3" if y0 == y1 else "m-3 0"
    forth = "m0 3" if y0 == y1 else "m3 0"
    return f'<path class="range" d="M{x0:.1f} {y0:.1f}{back}{across}{forth}L{x1:.1f} {y1:.1f}{back}{across}"/>'
