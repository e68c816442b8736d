"""Reports as Markdown, CSV and JSON, and the figures in them."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from fabricated_runs import HOSTILE, fabricated_latency, fabricated_run, fabricated_throughput
from ringroad_lab.comparison import compare_runs
from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.method.message_size import MESSAGES
from ringroad_lab.record import Better, Curve, MeasurementStatus, Metric, RunRecord, RunState, Series
from ringroad_lab.report.charts import grid_chart, style_index
from ringroad_lab.report.csv import COLUMNS, CsvReporter
from ringroad_lab.report.figures import headline_grids, in_bits, overview, warnings
from ringroad_lab.report.markdown import MarkdownReporter
from ringroad_lab.report.quantity import duration, moment, percent_change, quantity, scale_for
from ringroad_lab.report.rates import Rates
from ringroad_lab.report.view import ReportView, make_view
from ringroad_lab.trial import Load


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (4_101_999.0, "frames/s", "4.102 Mframes/s"),
        (999.0, "frames/s", "999.0 frames/s"),
        (0.0, "frames/s", "0 frames/s"),
        (1e10, "bit/s", "10.00 Gbit/s"),
        (8_000.0, "ns", "8.000 µs"),
        (0.25, "ns", "0.2500 ns"),
        (0.0031, "ratio", "0.3100 %"),
        (0.002, "s", "2.000 ms"),
        (5e7, "bytes", "50.00 Mbytes"),
        (1024.0, "addresses", "1\u202f024 addresses"),
        (512.0, "frames", "512 frames"),
        (512.5, "frames", "512.5 frames"),
        (12.0, "", "12.00"),
        (1e30, "frames/s", "1e+18 Tframes/s"),
        (3e-12, "cycles/frame", "3e-12 cycles/frame"),
    ],
)
def test_quantities_are_readable(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


def test_figures_of_a_column_have_the_same_decimals() -> None:
    scale = scale_for([5_200_000.0, 240_123.0], "frames/s")
    assert (scale.unit, scale.aligned(5_200_000.0), scale.aligned(240_123.0)) == ("Mframes/s", "5.200", "0.240")


def test_times_and_changes_are_readable() -> None:
    assert [duration(s) for s in (3.21, 59.96, 75.0, 3599.6, 3720.0)] == ["3.2 s", "1 min 00 s", "1 min 15 s", "1 h 00 min", "1 h 02 min"]
    assert [duration(s, decimals=0) for s in (3.21, 59.5, 75.0)] == ["3 s", "1 min 00 s", "1 min 15 s"]
    assert moment(1_700_000_000) == "2023-11-14 22:13:20 UTC"
    assert moment(1e30) == "1e+30 s since 1970"
    changes = [percent_change(ratio) for ratio in (0.95, 1.012, 0.9999, 1e30)]
    assert changes == ["\u22125.0\u202f%", "+1.2\u202f%", "+0.0\u202f%", "+1.0e+32\u202f%"]


def test_the_overview_lists_measurements_and_outcomes() -> None:
    record = fabricated_run(spread=0.0)
    first, second, third = overview(record, compare_runs(record, record))
    assert first == (
        "Throughput and latency of linux-bridge, ovs, ovs-dpdk and ringroad in P2P with frames of 64, 512 and 1518 bytes, "
        "each 3 times, in 6 min 40 s."
    )
    assert second == (
        "At 64 bytes, the order of the devices by throughput is not decided (ringroad 5.133 Mframes/s, ovs-dpdk 4.048 Mframes/s, "
        "linux-bridge 483.7 kframes/s, ovs 236.9 kframes/s); ringroad compared with ovs-dpdk and linux-bridge and ovs: 3 samples; an "
        "interval of 95 % needs 6, finding 5 % needs 12."
    )
    assert third.startswith("Compared with P2P_FABRICATED (")


def test_a_rate_beyond_the_line_rate_gives_a_warning() -> None:
    # 1 Gbit/s has room for 1 488 095 frames of 64 bytes, and for more than 81 000 of 1518.
    (warning,) = warnings(
        fabricated_run(capacities_fps={"ovs": 1_520_000.0}, frames=["64"], repetitions=3, spread=0, link_bps=1e9, latency=False)
    )
    assert warning == (
        "Throughput of ovs in P2P with frames of 64 bytes exceeds the line rate: 1.501 Mframes/s at 64 bytes; the links carry at most "
        "1.488 Mframes/s. The figure or the speed of the links is wrong."
    )
    assert warnings(fabricated_run(capacities_fps={"ovs": 1_480_000.0}, frames=["64"], link_bps=1e9, spread=0)) == []
    assert warnings(fabricated_run(capacities_fps={"ovs": 1e12}, link_bps=None)) == []
    # One warning for all sizes and repetitions.
    (warning,) = warnings(fabricated_run(capacities_fps={"ovs": 1e9}, link_bps=1e9, spread=0))
    assert "with frames of 64, 512 and 1518 bytes exceeds the line rate" in warning


def test_an_unfinished_or_empty_run_gives_warnings() -> None:
    empty = fabricated_run(capacities_fps={}, state=RunState.FAILED).model_copy(update={"failure": "no memory"})
    assert warnings(empty) == [
        "The run failed: no memory. The report shows the measurements until then.",
        "The run has no measurement.",
    ]
    assert overview(empty, None) == ["Nothing was measured in 0.0 s."]
    assert MarkdownReporter().render(empty)


def test_an_invalid_measurement_has_no_figure_anywhere() -> None:
    record = fabricated_run(capacities_fps={"ovs": 1e6}, frames=["64"], repetitions=1, latency=False)
    broken = fabricated_throughput(
        0, "ovs", parse_frame_mix("64"), 777_777.0, status=MeasurementStatus.INVALID, reasons=("generator died",)
    )
    # Even if a method left a figure in it.
    outcome = broken.outcome.model_copy(update={"metrics": record.measurements[0].outcome.metrics, "headline": "throughput_fps"})
    record = record.model_copy(update={"measurements": (broken.model_copy(update={"outcome": outcome}),)})
    (grid,) = headline_grids(record)
    assert grid.cells["ovs", "64"].median is None
    chart = grid_chart(in_bits(grid), style_index(record), None)
    assert chart.figure["data"][0]["text"] == ["\u00d7"]
    text = MarkdownReporter().render(record)
    assert "generator died" in text
    assert "| 64 | invalid |" in text
    assert not make_view(record).curve_charts


@pytest.mark.parametrize(("greatest", "kind"), [(100_000.0, "log"), (100.0, None)])
def test_curves_over_many_magnitudes_have_a_logarithmic_axis(greatest: float, kind: str | None) -> None:
    record = fabricated_run()
    measurement = next(each for each in record.measurements if each.outcome.curves)
    points = ((1.0, 5e6), (greatest, 4e6))
    curve = Curve(name="throughput", x_name="flow entries", x_unit="entries", y_name="throughput", y_unit="frames/s", points=points)
    outcome = measurement.outcome.model_copy(update={"curves": (curve,)})
    record = record.model_copy(update={"measurements": (measurement.model_copy(update={"outcome": outcome}),)})
    (chart,) = make_view(record).curve_charts
    assert chart.figure["layout"]["xaxis"].get("type") == kind


def test_line_rates_are_shown_with_the_figures() -> None:
    record = fabricated_run(link_bps=1e10)
    (throughput, _) = make_view(record).grids
    assert throughput.line_rates["64"] == pytest.approx(14_880_952, rel=1e-6)
    lines = [trace for trace in throughput.charts[0].figure["data"] if trace["name"] == "line rate"]
    assert lines[0]["y"][0] == pytest.approx(14.880952, rel=1e-6)
    # In bits of frames: preamble and gap do not count.
    in_bit = [trace for trace in throughput.charts[1].figure["data"] if trace["name"] == "line rate"]
    assert in_bit[0]["y"][0] == pytest.approx(10 * 64 / 84, rel=1e-6)


def test_links_far_faster_than_the_devices_do_not_flatten_the_bars() -> None:
    charts = [make_view(fabricated_run(capacities_fps={"ovs": 1e6}, spread=0, link_bps=bps)).grids[0].charts[0] for bps in (1e11, 1.5e9)]
    assert [chart.figure["layout"]["yaxis"].get("range") for chart in charts] == [[0, pytest.approx(1.25 * 0.9872 * 1e3)], None]


def test_a_killed_run_shows_devices_without_a_record() -> None:
    record = fabricated_run().model_copy(update={"duts": ()})
    view = make_view(record, compare_runs(record, record))
    assert "of linux-bridge, ovs, ovs-dpdk and ringroad in P2P" in view.sentences[0]
    assert view.grids[0].grid.duts == ("linux-bridge", "ovs", "ovs-dpdk", "ringroad")
    assert "| 64 | 0.4" in MarkdownReporter().render(record)


def test_the_latencies_of_topologies_are_not_mixed() -> None:
    frame = parse_frame_mix("64")
    first, second = (fabricated_latency(number, "ovs", frame, ns) for number, ns in enumerate((1000.0, 5000.0)))
    record = fabricated_run(capacities_fps={}).model_copy(update={"measurements": (first, second.model_copy(update={"topology": "PVP"}))})
    view = make_view(record)
    assert [(line.topology, line.percentiles_ns[50.0]) for line in view.latency_lines] == [("P2P", 1000.0), ("PVP", 5000.0)]
    assert [chart.title for chart in view.latency_charts] == [
        f"Latency percentiles at 100 % of throughput, 64 bytes ({topology})" for topology in ("P2P", "PVP")
    ]


def test_measurements_with_the_same_fault_are_grouped() -> None:
    bad = [
        fabricated_throughput(n, "ovs", parse_frame_mix(size), 1.0, status=MeasurementStatus.INVALID, reasons=(f"sent {n} %",))
        for n, size in enumerate(("512", "64", "64", "64"))
    ]
    (group,) = make_view(fabricated_run(capacities_fps={}).model_copy(update={"measurements": tuple(bad)})).status_groups
    assert (group.count, group.frames, group.why) == (4, ("64", "512"), "sent 0 % / sent 1 % / and 2 more, listed with the trials")


def test_the_picture_names_the_scenarios_cables() -> None:
    assert ">veth</text>" in make_view(fabricated_run()).topology_pictures[0]
    assert make_view(fabricated_run().model_copy(update={"scenario": {"scenarios": "none"}})).topology_pictures


def test_message_sizes_have_stations_and_no_frames() -> None:
    run = fabricated_run()
    of_messages = tuple(measurement.model_copy(update={"frame": MESSAGES}) for measurement in run.measurements)
    view = make_view(run.model_copy(update={"measurements": of_messages}))
    (picture,) = view.topology_pictures
    assert picture.count(">station</text>") == 2
    assert "generator" not in picture
    assert "in P2P with messages, each" in view.sentences[0]
    assert view.sentences[1].startswith("With messages, ringroad has the highest throughput, ")

    def axes(view: ReportView) -> set[str]:
        return {grid.charts[0].figure["layout"]["xaxis"]["title"]["text"] for grid in view.grids}

    assert (axes(view), axes(make_view(run))) == ({""}, {"frame size, bytes"})
    both = make_view(run.model_copy(update={"measurements": (*run.measurements, *of_messages)}))
    assert " bytes and messages, each" in both.sentences[0]


def test_hours_and_threads_over_time_stay_readable() -> None:
    points = tuple((1e9 + second, float(second % 4)) for second in range(4000))
    series = tuple(Series(name="processor time", subject=f"thread {number}", unit="processors", points=points) for number in range(13))
    few, many = (
        make_view(fabricated_run(started_at=1e9).model_copy(update={"series": series[:count]})).series_charts[0] for count in (2, 13)
    )
    assert [chart.figure["layout"]["showlegend"] for chart in (few, many)] == [True, False]
    assert many.caption == "13 lines: point at a line to see its name."
    (line, _) = few.figure["data"]
    # Means of four samples each.
    assert (len(line["x"]), line["x"][:3], set(line["y"])) == (1000, [0, 4, 8], {1.5})


def test_csv_has_every_metric_in_full_precision() -> None:
    record = fabricated_run()
    rows = list(csv.DictReader(io.StringIO(CsvReporter().render(record))))
    assert tuple(rows[0]) == COLUMNS
    metrics = [(int(row["number"]), row["metric"], float(row["value"])) for row in rows]
    assert metrics == [(m.number, name, metric.value) for m in record.measurements for name, metric in m.outcome.metrics.items()]


def test_csv_lists_measurements_without_a_figure_and_escapes_formulas() -> None:
    broken = fabricated_throughput(0, "=cmd|'/c calc'!A1", parse_frame_mix("64"), 1.0, status=MeasurementStatus.INVALID)
    record = fabricated_run(capacities_fps={}, name='@"x",\n').model_copy(update={"measurements": (broken,)})
    (row,) = csv.DictReader(io.StringIO(CsvReporter().render(record)))
    assert (row["status"], row["metric"], row["value"]) == ("invalid", "", "")
    assert row["dut"] == "'=cmd|'/c calc'!A1"
    assert row["name"] == '\'@"x",\n'


def test_markdown_escapes_hostile_names() -> None:
    record = fabricated_run(name=f"{HOSTILE}\n# heading | cell", capacities_fps={"a|b`c`<img>": 1e6})
    # The rest is a block of code.
    text, _, command = MarkdownReporter().render(record).partition("## Repeat\n\n    ")
    assert "<script" not in text.replace("\\<script", "")
    assert "\n# heading" not in text
    assert "<img>" not in text.replace("\\<img\\>", "")
    assert command.startswith("ringroad-lab run")


def test_markdown_shows_the_comparison() -> None:
    before, after = (fabricated_run(seed=seed, capacities_fps={"ovs": rate}, repetitions=12) for seed, rate in ((1, 1e6), (2, 0.8e6)))
    text = MarkdownReporter().render(after, compare_runs(before, after))
    assert "## Comparison" in text
    assert "| regression |" in text
    assert "The largest regression is throughput of ovs in P2P at " in text


def thesis_run(rates_mbps: dict[str, float], **settings: Any) -> RunRecord:  # noqa: ANN401
    """Return a run whose rates at layer 1, of both directions together, are those of table E.1 of the thesis."""
    measurements = []
    for number, (size, rate) in enumerate(rates_mbps.items()):
        frame = parse_frame_mix(size)
        measurements.append(fabricated_throughput(number, "ovs-dpdk", frame, rate * 1e6 / 2 / (8 * (int(size) + 20))))
    empty = fabricated_run(capacities_fps={"ovs-dpdk": 1.0}, latency=False, **settings)
    return empty.model_copy(update={"measurements": tuple(measurements)})


THESIS_MBPS = {"64": 13999.59, "576": 19965.90, "1280": 19999.44, "1500": 19927.58}


def test_rates_at_layer_1_of_both_directions_are_those_of_the_thesis() -> None:
    record = thesis_run(THESIS_MBPS, link_bps=1e10)
    # 20.83 Mpps in the thesis, of both directions.
    assert record.measurements[0].outcome.metrics["throughput_fps"].value == pytest.approx(20.83e6 / 2, rel=1e-3)
    text = MarkdownReporter().render(Rates.SUM_L1.of(record))
    assert "Throughput, P2P: Throughput sum L1, Mbit/s" in text
    for size, rate in THESIS_MBPS.items():
        shown = f"{rate:,.2f}".replace(",", " ")
        assert f"| {size} | {shown} | 20 000.00 |" in text
    # So are the frames of both directions: 20.83, 4.19, 1.92 and 1.64 Mpps there.
    assert "Throughput, P2P: Throughput sum, Mframes/s" in text
    assert "| 64 | 20.83 | 29.76 |" in text
    assert "| 1500 | 1.64 | 1.64 |" in text
    assert "Both directions together, at layer 1: 20 bytes of preamble and gap count with each frame." in text
    assert "At 64 bytes, ovs-dpdk has 14.00 Gbit/s." in text
    assert Rates.DIRECTION.of(record) == record


def test_rates_at_layer_1_are_compared_as_the_rates_of_the_record() -> None:
    before, after = thesis_run(THESIS_MBPS), thesis_run({**THESIS_MBPS, "64": 13770.09})
    plain = compare_runs(before, after)
    at_l1 = compare_runs(Rates.SUM_L1.of(before), Rates.SUM_L1.of(after))
    headlines = [[row for row in found.rows if row.is_headline] for found in (plain, at_l1)]
    for row, other in zip(*headlines, strict=True):
        assert other.key.metric == "throughput_sum_l1_bps"
        assert other.comparison.ratio == pytest.approx(row.comparison.ratio)
        assert other.noise_floor == row.noise_floor
        assert (other.noise_floor is not None) == (other.key.frame == "64")
    assert plain.verdict == at_l1.verdict
    (row,) = (row for row in at_l1.rows if row.is_headline and row.key.frame == "64")
    # 98.0 % in the thesis.
    assert row.comparison.ratio == pytest.approx(0.98, abs=0.005)
    assert row.comparison.baseline == pytest.approx([13999.59e6])


def test_a_rate_of_one_direction_is_no_sum() -> None:
    record = thesis_run({"64": 10_000.0}, link_bps=1e10)
    (m,) = record.measurements
    load = Load(frame=m.frame, rate_fps=1e6, bidirectional=False)
    requests = [trial.request.model_copy(update={"load": load}) for trial in m.trials]
    one_way = [trial.model_copy(update={"request": request}) for trial, request in zip(m.trials, requests, strict=True)]
    record = Rates.SUM_L1.of(record.model_copy(update={"measurements": (m.model_copy(update={"trials": tuple(one_way)}),)}))
    text = MarkdownReporter().render(record)
    assert "Throughput L1, Mbit/s" in text
    assert "| 64 | 5 000.00 | 10 000.00 |" in text
    assert "Per direction, at layer 1" in text


def test_the_sum_of_two_directions_does_not_exceed_a_line_rate() -> None:
    record = thesis_run({"64": 14_000.0}, link_bps=1e10)
    (m,) = record.measurements
    metrics = {**m.outcome.metrics, "throughput_sum_fps": Metric(value=20.83e6, unit="frames/s", better=Better.HIGHER)}
    m = m.model_copy(update={"outcome": m.outcome.model_copy(update={"metrics": metrics})})
    assert warnings(record.model_copy(update={"measurements": (m,)})) == []
