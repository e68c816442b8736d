"""A load of TCP through real devices, by the real iperf3, for a second; and what its output can be."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ringroad_lab.errors import GeneratorError
from ringroad_lab.message_size.iperf3 import parse_iperf3
from sandboxed import ask_in_sandbox

needs_programs = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("iperf3", "ethtool"))), reason="needs root, iperf3, ethtool"
)
needs_ovs = pytest.mark.skipif(shutil.which("ovs-vsctl") is None, reason="Open vSwitch is not installed (openvswitch-switch)")


def load(driver: str, **settings: Any) -> dict[str, Any]:  # noqa: ANN401
    request = {"driver": driver, "settings": {"duration_s": 1, "omit_s": 0, **settings}}
    return ask_in_sandbox(Path(__file__).parent / "load_in_sandbox.py", request)


@needs_programs
@pytest.mark.parametrize(
    ("driver", "both", "has_process"),
    [("linux-bridge", True, False), pytest.param("ovs", False, True, marks=needs_ovs)],
)
def test_tcp_passes_through_the_device_at_the_rate_that_is_reported(driver: str, both: bool, has_process: bool) -> None:
    seen = load(driver, streams=2, both_directions=both)
    assert "error" not in seen, seen
    metrics = {name: metric["value"] for name, metric in seen["outcome"]["metrics"].items()}
    assert seen["outcome"]["status"] == "ok"
    assert seen["outcome"]["headline"] == "tcp_load_throughput_bps"
    assert metrics["tcp_load_throughput_bps"] > 0
    assert metrics["tcp_load_retransmissions"] >= 0
    ways = [metrics[f"tcp_load_{way}_bps"] for way in ("1_to_2", "2_to_1")] if both else []
    assert ("tcp_load_1_to_2_bps" in metrics) == both
    assert sum(ways) == pytest.approx(metrics["tcp_load_throughput_bps"] if both else 0)
    assert ("tcp_load_dut_processors" in metrics) == has_process
    assert ("dut_memory_bytes" in metrics) == has_process
    # The payload went through the device: its counters have more bytes than iperf3 has. Frames without offloads have 1514 bytes at most.
    frames = sum(count for name, count in seen["counters"].items() if name.endswith("rx_frames"))
    assert frames * 1514 * 8 >= metrics["tcp_load_throughput_bps"]


def output(**sums: Any) -> str:  # noqa: ANN401
    return json.dumps({"start": {}, "intervals": [], "end": sums})


SUMS = {"sum_sent": {"bits_per_second": 1e9, "retransmits": 3}, "sum_received": {"bits_per_second": 9e8}}
BACK = {"sum_sent_bidir_reverse": {"retransmits": 4}, "sum_received_bidir_reverse": {"bits_per_second": 5e8}}


def test_the_rates_are_those_that_arrived() -> None:
    assert parse_iperf3(output(**SUMS), both_directions=False).throughput_bps == {"1_to_2": 9e8}
    both = parse_iperf3(output(**SUMS, **BACK), both_directions=True)
    assert (both.throughput_bps, both.retransmissions) == ({"1_to_2": 9e8, "2_to_1": 5e8}, 7)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "reported no rates"),
        ("iperf3: error", "reported no rates"),
        ("[]", "reported no rates"),
        ("[" * 100_000, "reported no rates"),
        ('{"error": "unable to connect to server: Connection refused"}', "iperf3: unable to connect"),
        (output(), "reported no rates"),
        (output(sum_sent={"retransmits": 0}, sum_received={"bits_per_second": "fast"}), "reported no rates"),
        (output(sum_sent={"retransmits": True}, sum_received={"bits_per_second": 1.0}), "reported no rates"),
        (output(sum_sent={"retransmits": 0}, sum_received={"bits_per_second": float("nan")}), "reported no rates"),
        (output(sum_sent={"retransmits": 0}, sum_received={"bits_per_second": 0}), "no data arrived"),
    ],
)
def test_output_without_rates_is_an_error(text: str, words: str) -> None:
    with pytest.raises(GeneratorError, match=words):
        parse_iperf3(text, both_directions=False)
