"""Figures are found in what programs print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ringroad_lab.documents.selection import find

RUN = json.loads((Path(__file__).parent / "run.json").read_text())
"""Part of what `ringroad-lab run compare-guest-switches --json` printed."""
BENCH = json.loads((Path(__file__).parent / "bench.json").read_text())
"""Part of what `ringroad bench --path gen-null --json` printed; a program without optimization on a busy machine."""


def throughput(dut: str, topology: str = "P2P") -> str:
    return (
        f"measurements[dut={dut}][topology={topology}][method=throughput][frame=64][is_noise_floor=false].metrics.throughput_sum_fps.value"
    )


def test_a_figure_of_a_run_is_found_with_what_the_run_says_against_it() -> None:
    found = find(RUN, throughput("ringroad"))
    assert found is not None
    assert (found.value, found.samples, found.remarks) == (360536.0, 1, ("lower-bound",))
    found = find(RUN, throughput("ringroad", "PVP"))
    assert found is not None
    assert found.remarks == ()


def test_a_ratio_of_two_devices_has_the_remarks_of_both() -> None:
    found = find(RUN, throughput("ringroad", "PVP"), throughput("testpmd"))
    assert found is not None
    assert found.value == pytest.approx(121400 / 291072)
    assert found.remarks == ("lower-bound",)


def test_an_invalid_measurement_has_no_figure() -> None:
    assert find(RUN, throughput("ovs-dpdk", "PVP")) is None
    assert find(RUN, throughput("ovs-dpdk", "PVP"), throughput("ovs-dpdk")) is None
    assert find(RUN, throughput("ovs-dpdk"), throughput("ovs-dpdk", "PVP")) is None


def test_repetitions_are_summarized_and_divided_pair_by_pair() -> None:
    output = {"rows": [{"dut": dut, "value": value} for dut, value in (("a", 1), ("b", 2), ("b", 8), ("a", 2), ("a", 9), ("b", 3))]}
    found = find(output, "rows[dut=a].value")
    assert found is not None
    assert (found.value, found.least, found.most, found.samples) == (2, 1, 9, 3)
    found = find(output, "rows[dut=a].value", "rows[dut=b].value")
    assert found is not None
    # 1 / 2, 2 / 8, 9 / 3
    assert (found.value, found.least, found.most) == (0.5, 0.25, 3)


def test_a_summary_of_a_bench_keeps_its_range_and_number_and_its_wait() -> None:
    found = find(BENCH, "points[path=gen-null][burst_frames=32].absolutes[contestant=Ringroad, signed].frames_per_second")
    assert found is not None
    assert (found.least, found.value, found.most) == (9679916.995261587, 9887616.656108748, 10095316.316955907)
    assert (found.samples, found.remarks) == (2, ("waited for its processor for 16% of the time",))
    found = find(BENCH, "points[path=gen-null][burst_frames=32].ratios[ours=Ringroad, signed][peer=DPDK flowgen].ratio")
    assert found is not None
    assert (found.value, found.samples) == (0.16026182311776446, 1)
    # All samples were invalid.
    assert find(BENCH, "points[path=gen-null][burst_frames=256].ratios[ours=Ringroad, signed][peer=DPDK flowgen].ratio") is None


@pytest.mark.parametrize("other", ["points", {}, [], None, {"points": 3}, {"points": [None, 3, {"path": []}]}, {"points": {"a": True}}])
def test_other_output_has_no_figure(other: object) -> None:
    assert find(other, "points[path=a].a") is None
