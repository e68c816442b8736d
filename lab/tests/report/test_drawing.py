"""Charts as SVG: what lies where, and that every text stays text."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from fabricated_runs import HOSTILE, fabricated_run
from ringroad_lab.comparison import compare_runs
from ringroad_lab.report.charts import comparison_chart
from ringroad_lab.report.drawing import draw
from ringroad_lab.report.view import make_view


def axis(title: str = "", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - as figures have it
    return {"title": {"text": title}, **more}


def curve(x: list[Any], y: list[Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401
    style = {"line": {"color": "#000000", "width": 1}, "marker": {"color": "#000000", "size": 6}}
    return {"type": "scatter", "mode": "lines+markers", "name": "one", "x": x, "y": y, **style, **more}


def drawn(traces: list[dict[str, Any]], x: dict[str, Any], y: dict[str, Any], **layout: Any) -> ElementTree.Element:  # noqa: ANN401
    return ElementTree.fromstring(draw({"data": traces, "layout": {"xaxis": x, "yaxis": y, "height": 300, **layout}}, 500))


def texts(picture: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in picture.iter("text")]


@pytest.mark.parametrize(
    ("spec", "values", "labels"),
    [
        ({}, [3.0, 4.0], ["3", "3.2", "3.4", "3.6", "3.8", "4"]),
        ({"rangemode": "tozero"}, [3.0, 4.0], ["0", "1", "2", "3", "4"]),
        ({"rangemode": "tozero"}, [-30.0, -10.0], ["\u221230", "\u221225", "\u221220", "\u221215", "\u221210", "\u22125", "0"]),
        ({"type": "log"}, [2.0, 30_000.0], ["10", "100", "1\u202f000", "10\u202f000"]),
        ({"type": "log"}, [2.0, 30.0], ["2", "5", "10", "20"]),
        ({}, [7.0, 7.0], ["7", "8", "9", "10", "11", "12", "13", "14"]),
        ({"range": [0, 10]}, [7.0, 70.0], ["0", "2", "4", "6", "8", "10"]),
    ],
)
def test_an_axis_has_round_numbers_within_its_range(spec: dict[str, Any], values: list[float], labels: list[str]) -> None:
    picture = drawn([curve(["a", "b"], values)], axis(type="category"), axis(**spec))
    assert [text for text in texts(picture) if text not in ("a", "b")] == labels


def test_the_axis_of_changes_has_its_zero() -> None:
    before, after = (fabricated_run(seed=seed, repetitions=6, spread=0.001, frames=["64"], latency=False) for seed in (1, 2))
    faster = [
        m.model_copy(
            update={
                "outcome": m.outcome.model_copy(
                    update={
                        "metrics": {
                            name: metric.model_copy(update={"value": 2 * metric.value}) for name, metric in m.outcome.metrics.items()
                        }
                    }
                )
            }
        )
        for m in after.measurements
    ]
    chart = comparison_chart(compare_runs(before, after.model_copy(update={"measurements": tuple(faster)})))
    assert chart
    # All changes are about 100 %.
    assert {"0", "100"} <= set(texts(ElementTree.fromstring(chart.svg(is_wide=True))))


def test_values_beyond_an_axis_and_missing_values_are_left_out() -> None:
    picture = drawn([curve(["a", "b", "c"], [5.0, None, 50.0], mode="markers")], axis(type="category"), axis(range=[0, 10]))
    assert [title.text for title in picture.iter("title")] == ["one: a, 5"]


@pytest.mark.parametrize("spec", [{}, {"rangemode": "tozero"}, {"type": "log"}])
@pytest.mark.parametrize("values", [[-1e308, 1e308], [5e-324, 1e-323], [1e16, 1e16 + 2], [0.0, 0.0], [], [-5.0, -5.0], [1e-9, 1e300]])
def test_any_numbers_are_drawn(spec: dict[str, Any], values: list[float]) -> None:
    picture = drawn([curve(list(values), list(values))], axis(**spec), axis(**spec))
    assert all("nan" not in str(value) and "inf" not in str(value) for element in picture.iter() for value in element.attrib.values())


def test_long_categories_do_not_overlap() -> None:
    names = [f"a category with the number {number}" for number in range(8)]
    picture = drawn([curve(names, [1.0] * 8)], axis(type="category"), axis(rangemode="tozero"))
    slanted = [text for text in picture.iter("text") if "rotate(-30)" in text.get("transform", "")]
    assert [text.findtext("title") for text in slanted] == names
    assert all(len(text.text or "") <= 22 for text in slanted)


def test_one_trace_needs_no_legend_and_many_have_several_rows() -> None:
    few = drawn([curve([1.0, 2.0], [1.0, 2.0])], axis(), axis())
    assert "one" not in texts(few)
    many = drawn([curve([1.0, 2.0], [1.0, 2.0], name=f"a device with number {number}") for number in range(6)], axis(), axis())
    entries = [group.get("transform") for group in many.iter("g") if group.get("transform")]
    assert len(entries) == 6
    assert len({place.split()[1] for place in entries if place}) > 1


def test_hostile_texts_stay_text() -> None:
    record = fabricated_run(capacities_fps={HOSTILE: 1e6, "x" * 100: 2e6}, repetitions=2)
    view = make_view(record, compare_runs(record, record))
    charts = [chart for part in view.grids for chart in part.charts] + [*view.curve_charts, *view.latency_charts, *view.series_charts]
    assert view.comparison_chart
    for chart in (view.comparison_chart, *charts):
        picture = ElementTree.fromstring(chart.svg())
        assert {element.tag for element in picture.iter()} <= {"svg", "g", "path", "rect", "text", "title"}
        assert all(not name.startswith("on") for element in picture.iter() for name in element.attrib)
