"""The input of the script that draws a trend."""

from __future__ import annotations

from html import escape
from typing import Any

from ringroad_lab.report.quantity import quantity, utc_text
from ringroad_lab.web.templating import format_change, format_time
from ringroad_lab.web.trend import Trend, TrendPoint


def trend_chart(trend: Trend) -> dict[str, Any]:
    """Return points, levels and steps. Texts are escaped: the chart library interprets some HTML."""
    starts = [0, *(step.point.index for step in trend.steps)]
    ends = [*starts[1:], len(trend.points)]
    levels = [
        {"from": _at(trend.points[start]), "to": _at(trend.points[end - 1]), "value": value}
        for start, end, value in zip(starts, ends, _means(trend), strict=True)
    ]
    return {
        "unit": escape(trend.unit),
        "points": [
            {
                "at": _at(point),
                "value": point.median,
                "lowest": point.lowest,
                "highest": point.highest,
                "is_lower_bound": point.has_lower_bound,
                "path": f"/runs/{point.run_id}",
                "text": f"{format_time(point.started_at)}<br>{escape(quantity(point.median, trend.unit))}"
                + (f", median of {point.repetitions}" if point.repetitions > 1 else "")
                + ("<br>at least: the generator's ceiling" if point.has_lower_bound else ""),
            }
            for point in trend.points
        ],
        "levels": levels,
        "steps": [
            {"at": _at(trend.points[step.point.index]), "verdict": step.verdict.value, "text": format_change(step.point.change)}
            for step in trend.steps
        ],
    }


def _means(trend: Trend) -> list[float]:
    if not trend.steps:
        return [sum(point.median for point in trend.points) / len(trend.points)] if trend.points else [0.0]
    return [trend.steps[0].point.mean_before, *(step.point.mean_after for step in trend.steps)]


def _at(point: TrendPoint) -> str:
    return utc_text(point.started_at, "%Y-%m-%dT%H:%M:%S")
