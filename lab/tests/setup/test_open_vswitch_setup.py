"""Test setups with Open vSwitch and with guests, end to end in a sandbox: P2P, PVP and PVVP. Asserts that frames pass, not the rate."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest
from test_test_setup import FRAME_64, assert_forwards, try_setup

from ringroad_lab.dut.open_vswitch import DPDK_DAEMON
from ringroad_lab.generator.offered_load import FOREIGN_FRAMES

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
needs_ovs = pytest.mark.skipif(shutil.which("ovs-vsctl") is None, reason="Open vSwitch is not installed (openvswitch-switch)")
needs_ovs_dpdk = pytest.mark.skipif(not os.path.exists(DPDK_DAEMON), reason="openvswitch-switch-dpdk is not installed")
needs_qemu = pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="QEMU is not installed (qemu-system-x86)")

LOAD = {"frame": FRAME_64, "rate_fps": 500}

P2P = [
    pytest.param("ovs", "veth", {}, "system", marks=needs_ovs, id="ovs-system"),
    pytest.param("ovs", "veth", {"veth_mode": "afxdp"}, "afxdp", marks=needs_ovs, id="ovs-afxdp"),
    pytest.param("ovs", "veth", {"forwarding": "normal"}, "system", marks=needs_ovs, id="ovs-normal"),
    pytest.param("ovs-dpdk", "veth", {}, "net_af_xdp", marks=needs_ovs_dpdk, id="ovs-dpdk-veth"),
    pytest.param("ovs-dpdk", "veth", {"veth_mode": "pcap"}, "net_pcap over the system's", marks=needs_ovs_dpdk, id="ovs-dpdk-pcap"),
    pytest.param("ovs-dpdk", "veth", {"veth_mode": "pcap-ringroad"}, "net_pcap over Ringroad's", marks=needs_ovs_dpdk, id="ovs-dpdk-ours"),
    pytest.param("ovs-dpdk", "vhost-user", {}, "dpdkvhostuserclient", marks=needs_ovs_dpdk, id="ovs-dpdk-vhost-user"),
]


@pytest.mark.parametrize(("driver", "cable", "settings", "mode"), P2P)
def test_open_vswitch_forwards_and_counts(driver: str, cable: str, settings: dict[str, Any], mode: str) -> None:
    results = try_setup(driver, cable, [LOAD], settings=settings)
    assert_forwards(results)
    received = sum(way["received_frames"] for way in results["trials"][0]["directions"])
    counters = results["counters"]
    forwarded = [counter for name, counter in counters.items() if name.endswith(".packets_received") and counter]
    assert forwarded, counters
    assert sum(forwarded) >= received
    if cable == "veth":
        assert counters["1.rx_frames"] + counters["2.rx_frames"] >= received
    # Only polling threads count their cycles.
    assert (results["busy_s"] or 0) > 0 if driver == "ovs-dpdk" or mode == "afxdp" else results["busy_s"] is None
    assert mode in results["record"]["ports"]["1"]
    assert results["record"]["versions"]["Open vSwitch"]
    assert ("DPDK" in results["record"]["versions"]) == (driver == "ovs-dpdk")


@needs_ovs
@pytest.mark.parametrize(
    ("scenario", "settings", "extra_bytes"),
    [
        pytest.param({"vlans": (100, 0)}, {"access_vlans": {"2": 100}}, (4, 0), id="vlan"),
        pytest.param({"vlans": (100, 0)}, {"access_vlans": {"2": 100}, "forwarding": "normal"}, (4, 0), id="vlan-normal"),
        pytest.param({"vnis": (0, 5000)}, {"vxlans": {"2": 5000}}, (0, 50), id="vxlan"),
    ],
)
def test_open_vswitch_adds_and_removes_tags_and_tunnels(
    scenario: dict[str, Any], settings: dict[str, Any], extra_bytes: tuple[int, int]
) -> None:
    results = try_setup("ovs", "veth", [{**LOAD, **scenario}], settings=settings, scenario=scenario)
    # Before its first packet a tunnel requests the address of its far end (ARP), once or a few times.
    assert_forwards(results, most_foreign=FOREIGN_FRAMES if "vxlans" in settings else 0)
    # All frames have 64 bytes. The switch counts them without FCS, and longer at the port where they are tagged or tunnelled.
    counters = results["counters"]
    for port, extra in zip(("1", "2"), extra_bytes, strict=True):
        assert counters[f"{port}.rx_bytes"] == counters[f"{port}.rx_frames"] * (60 + extra)


PATHS = [
    pytest.param("ovs", "veth", "PVP", "linux-bridge", marks=needs_ovs, id="ovs-linux-bridge-PVP"),
    pytest.param("ovs", "veth", "PVVP", "linux-bridge", marks=needs_ovs, id="ovs-linux-bridge-PVVP"),
    pytest.param("linux-bridge", "veth", "PVP", "linux-bridge", id="linux-bridge-linux-bridge-PVP"),
    pytest.param("linux-bridge", "veth", "PVVP", "linux-bridge", id="linux-bridge-linux-bridge-PVVP"),
    pytest.param("ovs-dpdk", "veth", "PVP", "testpmd", marks=needs_ovs_dpdk, id="ovs-dpdk-testpmd-PVP"),
    pytest.param("ovs-dpdk", "vhost-user", "PVP", "testpmd-csum", marks=needs_ovs_dpdk, id="ovs-dpdk-testpmd-csum-PVP"),
    pytest.param("ovs-dpdk", "vhost-user", "PVVP", "testpmd", marks=needs_ovs_dpdk, id="ovs-dpdk-testpmd-PVVP"),
    pytest.param("ringroad", "vhost-user", "PVP", "testpmd", id="ringroad-testpmd-PVP"),
    pytest.param("ringroad", "vhost-user", "PVVP", "testpmd", id="ringroad-testpmd-PVVP"),
]
EMULATED = [
    pytest.param("ovs-dpdk", "veth", "PVP", "qemu-linux-bridge", marks=[needs_ovs_dpdk, needs_qemu], id="ovs-dpdk-qemu-linux-bridge"),
    pytest.param("ovs-dpdk", "veth", "PVP", "qemu-testpmd", marks=[needs_ovs_dpdk, needs_qemu], id="ovs-dpdk-qemu-testpmd"),
    pytest.param("ovs", "veth", "PVP", "qemu-linux-bridge", marks=[needs_ovs, needs_qemu], id="ovs-qemu-tap"),
    pytest.param("linux-bridge", "veth", "PVP", "qemu-linux-bridge", marks=needs_qemu, id="linux-bridge-qemu-tap"),
]


@pytest.mark.parametrize(("driver", "cable", "topology", "guest"), [*PATHS, *EMULATED])
def test_frames_pass_through_guests(driver: str, cable: str, topology: str, guest: str) -> None:
    # Ringroad supports both: learning switches with a pair of ports each, and a switch with Open vSwitch's rules.
    settings = {"forwarding": "rules"} if (driver, topology) == ("ringroad", "PVVP") else {}
    results = try_setup(driver, cable, [LOAD], settings=settings, scenario={"topology": topology, "guest": guest})
    assert_forwards(results)
    # If the path bypassed the guests, there would be no frames at the device's guest ports.
    last_guest_port = 4 if topology == "PVP" else 6
    received = sum(way["received_frames"] for way in results["trials"][0]["directions"])
    if f"{last_guest_port}.rx_frames" in results["counters"]:
        assert results["counters"][f"{last_guest_port}.rx_frames"] > 0
        passed = sum(value for name, value in results["counters"].items() if name.endswith(".rx_frames"))
        assert passed > received
    guests = [part for part in results["processes"] if part.startswith("guest")]
    assert len(guests) == (1 if topology == "PVP" else 2)
    machines = results["record"]["guests"]
    assert list(machines) == (["guest1"] if guest.startswith("qemu") else [])
    if guest == "qemu-testpmd":
        assert machines["guest1"].startswith("768 MiB, 1 processor, kernel parameters: console=ttyS0")
        assert "hugepages=96" in machines["guest1"]
        assert results["record"]["versions"]["DPDK (guest)"]


@needs_qemu
def test_frames_pass_through_a_virtual_machine_with_two_queue_pairs() -> None:
    results = try_setup("ringroad", "vhost-user", [LOAD], scenario={"topology": "PVP", "guest": "qemu-testpmd-csum", "queues": 2})
    assert_forwards(results)
    assert "several queues" in results["record"]["ports"]["3"]


def test_a_cable_that_the_device_does_not_support_is_rejected() -> None:
    results = try_setup("ovs-dpdk", "memif", [LOAD])
    assert results["error"] == "ScenarioError"
    assert "memif" in results["text"]


@needs_ovs_dpdk
def test_open_vswitch_with_dpdk_has_many_queues_on_vhost_user_and_one_on_veth() -> None:
    results = try_setup("ovs-dpdk", "vhost-user", [LOAD], scenario={"queues": 2})
    assert_forwards(results)
    # Each queue has a ring in each direction.
    assert "num_of_vrings 4" in results["record"]["ports"]["1"]
    refused = try_setup("ovs-dpdk", "veth", [LOAD], scenario={"queues": 2})
    assert refused["error"] == "DutError"
    assert "one queue" in refused["text"]


def test_a_killed_switch_is_reported_with_its_log() -> None:
    results = try_setup("ovs", "veth", [LOAD, {"kill": True}])
    assert results["error"] == "DutError"
    assert "ended" in results["text"]
