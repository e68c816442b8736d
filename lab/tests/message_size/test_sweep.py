"""Sweeps over message sizes through real devices, with the real programs, at tiny durations."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ringroad_lab.dut.open_vswitch import DPDK_DAEMON
from ringroad_lab.message_size.sweep import sockperf_sizes
from sandboxed import ask_in_sandbox


def netdevs() -> list[str]:
    if (qemu := shutil.which("qemu-system-x86_64")) is None:
        return []
    return subprocess.run([qemu, "-M", "none", "-netdev", "help"], capture_output=True, text=True, check=False).stdout.split()


needs_programs = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("NPtcp", "sockperf", "ethtool"))), reason="needs root, netpipe-tcp, sockperf, ethtool"
)
needs_qemu = pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="QEMU is not installed (qemu-system-x86)")
needs_qemu_with_netmap = pytest.mark.skipif("netmap" not in netdevs(), reason="QEMU has no netmap ports (docs/netmap.md)")
needs_testpmd = pytest.mark.skipif(shutil.which("dpdk-testpmd") is None, reason="testpmd is not installed (dpdk-dev)")
needs_ovs_dpdk = pytest.mark.skipif(not os.path.exists(DPDK_DAEMON), reason="openvswitch-switch-dpdk is not installed")
needs_ovs = pytest.mark.skipif(shutil.which("ovs-vsctl") is None, reason="Open vSwitch is not installed (openvswitch-switch)")


def sweep(
    driver: str,
    *,
    kill: bool = False,
    cable: str = "veth",
    dut_settings: dict[str, Any] | None = None,
    **settings: Any,  # noqa: ANN401
) -> dict[str, Any]:
    request = {"driver": driver, "kill": kill, "cable": cable, "dut_settings": dut_settings or {}, "settings": settings}
    return ask_in_sandbox(Path(__file__).parent / "sweep_in_sandbox.py", request)


@needs_programs
@pytest.mark.parametrize(
    ("driver", "tools", "has_process"),
    [
        ("linux-bridge", ("netpipe", "sockperf-udp", "sockperf-tcp"), False),
        pytest.param("ovs", ("sockperf-udp",), True, marks=needs_ovs),
    ],
)
def test_each_tool_gives_a_curve_of_throughput_and_of_latency(driver: str, tools: tuple[str, ...], has_process: bool) -> None:
    answer = sweep(driver, tools=tools, max_bytes=16, perturbation_bytes=0)
    assert "error" not in answer, answer
    outcome = answer["outcome"]
    assert outcome["status"] == "ok"
    assert "generic-receive-offload: off" in answer["offloads"]
    assert outcome["headline"] in outcome["metrics"]
    curves = {curve["name"]: curve["points"] for curve in outcome["curves"]}
    assert set(curves) == {f"{tool} {what}" for tool in tools for what in ("throughput", "latency")}
    for tool in tools:
        sizes = [size for size, _ in curves[f"{tool} latency"]]
        assert sizes[0] == 1 if tool == "netpipe" else sizes == [14, 16]
        for (size, latency_ns), (_, throughput_bps) in zip(curves[f"{tool} latency"], curves[f"{tool} throughput"], strict=True):
            assert throughput_bps == pytest.approx(8e9 * size / latency_ns)
    # Each size of sockperf and all of NetPIPE are parts, and repetitions are among them.
    parts = {part["name"] for part in outcome["parts"]}
    assert parts == {part for tool in tools for part in (["netpipe"] if tool == "netpipe" else [f"{tool}, {n} bytes" for n in (14, 16)])}
    assert all(part["disturbance"]["elapsed_s"] > 0 for part in outcome["parts"])
    assert ("dut_memory_bytes" in outcome["metrics"]) == has_process
    assert ("sockperf_udp_dut_processors" in outcome["metrics"]) == has_process
    # Only the loopback is left.
    assert answer["links"] == 1
    assert answer["netns"] == ""


@needs_programs
@pytest.mark.parametrize(
    ("dut_settings", "is_within_kernel"),
    [({"veth_mode": "xdp", "shared_buffers": True}, False), ({"veth_mode": "kernel"}, True)],
)
def test_messages_between_ports_of_containers_pass_within_the_kernel(dut_settings: dict[str, Any], is_within_kernel: bool) -> None:
    answer = sweep("ringroad", dut_settings=dut_settings, tools=("sockperf-tcp",), max_bytes=16)
    assert "error" not in answer, answer
    assert answer["outcome"]["status"] == "ok"
    assert ("a way within the kernel" in answer["modes"]["1"]) is is_within_kernel
    # Before the kernel knows the addresses, and at a change of them, frames pass through the workers.
    counters = answer["counters"]
    passed = counters["1.rx_frames"] + counters["2.rx_frames"]
    assert passed > 1000
    assert (counters["worker_frames"] < passed / 2) is is_within_kernel
    # The cost of the kernel's path is in the kernel's time.
    assert "sockperf_tcp_kernel_processors" in answer["outcome"]["compared"]
    assert answer["links"] == 1


GUESTS = [
    pytest.param("linux-bridge", "tap", "netpipe", id="linux-bridge"),
    pytest.param("ovs-dpdk", "vhost-user", "sockperf-udp", marks=needs_ovs_dpdk, id="ovs-dpdk"),
    pytest.param("testpmd", "vhost-user", "sockperf-tcp", marks=needs_testpmd, id="testpmd"),
    pytest.param("ringroad", "netmap", "sockperf-udp", marks=needs_qemu_with_netmap, id="ringroad-netmap"),
]


@needs_programs
@needs_qemu
@pytest.mark.parametrize(("driver", "cable", "tool"), GUESTS)
def test_messages_go_back_and_forth_between_virtual_machines(driver: str, cable: str, tool: str) -> None:
    answer = sweep(driver, cable=cable, stations="guests", placement="device-apart", tools=(tool,), max_bytes=16, perturbation_bytes=0)
    assert "error" not in answer, answer
    assert answer["cable"] == cable
    assert {"QEMU", "Linux (guest)"} == set(answer["versions"])
    outcome = answer["outcome"]
    assert outcome["status"] == "ok"
    assert "generic-receive-offload: off" in answer["offloads"]
    latencies = next(curve["points"] for curve in outcome["curves"] if curve["name"] == f"{tool} latency")
    sizes = [size for size, _ in latencies]
    assert sizes[0] == 1 if tool == "netpipe" else sizes == [14, 16]
    name = tool.replace("-", "_")
    assert outcome["metrics"][f"{name}_stations_processors"]["value"] > 0
    # Two kernels with their memory.
    assert outcome["metrics"]["stations_memory_bytes"]["value"] > 64 << 20
    assert (f"{name}_dut_processors" in outcome["metrics"]) == (driver != "linux-bridge")
    assert answer["links"] == 1
    assert answer["netns"] == ""


@needs_programs
@pytest.mark.skipif("netmap" in netdevs() or not netdevs(), reason="needs a QEMU without netmap ports")
def test_a_qemu_without_netmap_ports_is_reported() -> None:
    answer = sweep("ringroad", cable="netmap", stations="guests", tools=("sockperf-udp",), max_bytes=16)
    assert answer["error"] == "GuestError"
    assert "this QEMU has no netmap ports; docs/netmap.md" in answer["text"]


@needs_programs
@needs_qemu
def test_a_virtual_machine_that_ends_is_reported() -> None:
    answer = sweep("ringroad", stations="guests", placement="device-apart", tools=("sockperf-udp",), max_bytes=16, kill=True)
    assert answer["error"] == "GuestError"
    assert "station2 (QEMU) ended" in answer["text"]


def test_sizes_begin_with_the_smallest_and_end_with_the_greatest_that_sockperf_can_send() -> None:
    sizes = sockperf_sizes(1 << 20)
    assert (sizes[0], sizes[-1]) == (14, 65507)
    assert list(sizes) == sorted(set(sizes))
    assert len(sizes) == 26
    assert sockperf_sizes(100)[-1] == 100
