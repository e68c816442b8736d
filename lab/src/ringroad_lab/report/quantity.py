"""Figures with their units, for people."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

_DIGITS = 4
_MOST_DECIMALS = 4
_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_COUNTED_UNITS = ("frames", "addresses")
_MOST_COUNTED = 1e15
_SCALED_UNITS = ("frames/s", "entries/s", "bit/s", "bytes/s", "bytes")
_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


@dataclass(frozen=True)
class Scale:
    """A unit with a prefix, for the figures of one column or axis."""

    divisor: float
    unit: str
    decimals: int = 0
    """Decimals that give three significant digits of the lowest value; at most four."""

    def aligned(self, value: float) -> str:
        """Return a figure in this unit, without the unit; all figures have the same number of decimals."""
        return f"{value / self.divisor:,.{self.decimals}f}".replace(",", "\u202f")

    def number(self, value: float) -> str:
        """Return a figure in this unit, without the unit."""
        return round_figure(value / self.divisor)


def scale_for(values: Iterable[float], unit: str) -> Scale:
    """Return a scale that suits the highest of the values."""
    sizes = [abs(value) for value in values if value and math.isfinite(value)]
    scale = _prefix_for(max(sizes, default=0.0), unit)
    least = min(sizes, default=0.0) / scale.divisor
    whole = all(float(size / scale.divisor).is_integer() for size in sizes)
    decimals = 0 if whole or not least else min(_MOST_DECIMALS, max(0, 2 - math.floor(math.log10(least))))
    return Scale(scale.divisor, scale.unit, decimals)


def _prefix_for(greatest: float, unit: str) -> Scale:
    if unit == "ratio":
        return Scale(0.01, "%")
    if unit == "ns":
        return next((Scale(size, name) for size, name in _TIMES if greatest >= size), Scale(1.0, "ns"))
    if unit == "s" and 0 < greatest < 1:
        found = _prefix_for(greatest * 1e9, "ns")
        return Scale(found.divisor / 1e9, found.unit)
    if unit in _SCALED_UNITS:
        return next((Scale(size, prefix + unit) for size, prefix in _LARGE if greatest >= size), Scale(1.0, unit))
    return Scale(1.0, unit)


def round_figure(value: float) -> str:
    """Return a figure with four significant digits and separated thousands."""
    if value == 0:
        return "0"
    if not math.isfinite(value):
        return str(value)
    magnitude = math.floor(math.log10(abs(value)))
    decimals = max(0, _DIGITS - 1 - magnitude)
    if decimals > 9 or magnitude > 14:
        return f"{value:.3g}"
    return f"{value:,.{decimals}f}".replace(",", "\u202f")


def count(value: int) -> str:
    """Return a count with separated thousands."""
    return f"{value:,}".replace(",", "\u202f")


def quantity(value: float, unit: str) -> str:
    """Return a figure with its unit: `4.102 Mframes/s`."""
    if unit in _COUNTED_UNITS and value.is_integer() and abs(value) < _MOST_COUNTED:
        return f"{count(int(value))} {unit}"
    scale = scale_for([value], unit)
    return f"{scale.number(value)} {scale.unit}".rstrip()


def percent_change(ratio: float) -> str:
    """Return a ratio as a change: `-5.2 %`."""
    change = round(100 * (ratio - 1), 1)
    text = f"{change:+.1f}" if abs(change) < 1e6 else f"{change:+.1e}"
    return f"{text}\u202f%".replace("-0.0", "+0.0").replace("-", "\u2212")


def duration(seconds: float, *, decimals: int = 1) -> str:
    """Return a length of time: `3.2 s`, `1 min 15 s`, `1 h 02 min`; `decimals` applies to less than a minute."""
    if round(seconds, decimals) < 60:
        return f"{seconds:.{decimals}f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def moment(seconds: float) -> str:
    """Return a time, given in seconds since 1970: `2026-11-22 09:15:42 UTC`."""
    return utc_text(seconds, "%Y-%m-%d %H:%M:%S UTC", f"{seconds:g} s since 1970")


def utc_text(seconds: float, form: str, otherwise: str = "") -> str:
    """Return a time in UTC, as `strftime` has it, or another text for times that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return otherwise
