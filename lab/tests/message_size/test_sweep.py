"""Sweeps over message sizes through real devices, with the real programs, at tiny durations."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ringroad_lab.message_size.sweep import sockperf_sizes
from sandboxed import ask_in_sandbox

needs_programs = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("NPtcp", "sockperf", "ethtool"))), reason="needs root, netpipe-tcp, sockperf, ethtool"
)
needs_ovs = pytest.mark.skipif(shutil.which("ovs-vsctl") is None, reason="Open vSwitch is not installed (openvswitch-switch)")


def sweep(driver: str, **settings: Any) -> dict[str, Any]:  # noqa: ANN401
    asked = {"driver": driver, "dut_settings": {}, "settings": settings}
    return ask_in_sandbox(Path(__file__).parent / "sweep_in_sandbox.py", asked)


@needs_programs
@pytest.mark.parametrize(
    ("driver", "tools", "has_process"),
    [
        ("linux-bridge", ("netpipe", "sockperf-udp", "sockperf-tcp"), False),
        pytest.param("ovs", ("sockperf-udp",), True, marks=needs_ovs),
    ],
)
def test_each_tool_gives_a_curve_of_throughput_and_of_latency(driver: str, tools: tuple[str, ...], has_process: bool) -> None:
    told = sweep(driver, tools=tools, max_bytes=16, perturbation_bytes=0)
    assert "error" not in told, told
    outcome = told["outcome"]
    assert outcome["status"] == "ok"
    assert outcome["headline"] in outcome["metrics"]
    curves = {curve["name"]: curve["points"] for curve in outcome["curves"]}
    assert set(curves) == {f"{tool} {what}" for tool in tools for what in ("throughput", "latency")}
    for tool in tools:
        sizes = [size for size, _ in curves[f"{tool} latency"]]
        assert sizes[0] == 1 if tool == "netpipe" else sizes == [14, 16]
        for (size, latency_ns), (_, throughput_bps) in zip(curves[f"{tool} latency"], curves[f"{tool} throughput"], strict=True):
            assert throughput_bps == pytest.approx(8e9 * size / latency_ns)
    assert ("dut_memory_bytes" in outcome["metrics"]) == has_process
    assert ("sockperf_udp_dut_processors" in outcome["metrics"]) == has_process
    # Only the loopback is left.
    assert told["links"] == 1
    assert told["netns"] == ""


def test_sizes_begin_with_the_smallest_and_end_with_the_greatest_that_sockperf_can_send() -> None:
    sizes = sockperf_sizes(1 << 20)
    assert (sizes[0], sizes[-1]) == (14, 65507)
    assert list(sizes) == sorted(set(sizes))
    assert len(sizes) == 26
    assert sockperf_sizes(100)[-1] == 100
