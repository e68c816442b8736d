"""Parts of a test setup on a machine with two NUMA nodes, which is fabricated: this machine may have one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fabricated_host import FabricatedHost
from ringroad_lab.dut.interface import Placement
from ringroad_lab.dut.open_vswitch import OvsDpdk, OvsDpdkSettings
from ringroad_lab.facts.numa_nodes import NumaNodes, Part, huge_pages_mib, locality_warnings, node_of_card
from ringroad_lab.facts.offloads import offloads
from ringroad_lab.host.interface import Process
from ringroad_lab.host.local import LocalHost

NODE = "/sys/devices/system/node"
TWO = {f"{NODE}/node0/cpulist": "0-2,6-8", f"{NODE}/node1/cpulist": "3-5,9-11"}
NODES = NumaNodes.of(FabricatedHost(TWO, {}))
PAIRS = [("generator", "device"), ("device", "guest1")]


class FabricatedProcess(Process):
    """A process of another machine."""

    pid = 7

    def stop(self, timeout_s: float = 5.0) -> int:
        """Do nothing."""
        return 0


def test_processors_have_nodes() -> None:
    assert NODES.of_processors(frozenset({2, 7})) == {0}
    assert NODES.of_processors(frozenset({2, 3})) == {0, 1}
    assert NODES.of_processors(frozenset()) == frozenset()


def test_cards_have_nodes_by_interface_or_address() -> None:
    host = FabricatedHost(
        {},
        {
            "cat /sys/class/net/ens1f0/device/numa_node": "1\n",
            "cat /sys/class/net/veth0/device/numa_node": "-1\n",
            "cat /sys/bus/pci/devices/0000:06:00.1/numa_node": "0\n",
        },
    )
    cards = ("ens1f0", "0000:06:00.1", "veth0", "ens9", "/run/sock", "../../x")
    assert [node_of_card(host, card) for card in cards] == [1, 0, None, None, None, None]


def test_the_huge_pages_of_a_process_have_nodes() -> None:
    maps = (
        "7f0000000000 default file=/a dirty=3 N0=3 kernelpagesize_kB=4\n"
        "100200000 default file=/anon_hugepage\\040(deleted) huge dirty=512 N0=12 N1=500 kernelpagesize_kB=2048\n"
        "140000000 default file=/anon_hugepage\\040(deleted) huge dirty=1 N1=1 kernelpagesize_kB=1048576\n"
    )
    assert huge_pages_mib(FabricatedHost({}, {"cat /proc/7/numa_maps": maps}), [FabricatedProcess("dpdk")]) == {0: 24.0, 1: 2024.0}


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([Part("generator", frozenset({0})), Part("device", frozenset({1, 2}))], []),
        (
            [Part("generator", frozenset({0})), Part("device", frozenset({3}))],
            ["the generator is on NUMA node 0, the device on node 1: the frames in their memory cross"],
        ),
        (
            [Part("generator", frozenset({3})), Part("device", frozenset({3})), Part("guest1", frozenset({0, 1}))],
            ["the device is on NUMA node 1, the guest1 on node 0"],
        ),
        ([Part("device", frozenset({2, 3}))], ["the processors of the device are on NUMA nodes 0 and 1"]),
        (
            [Part("device", frozenset({2}), {"ens1f0": 1, "ens1f1": 0, "ens2": None})],
            ["the device is on NUMA node 0, its card ens1f0 on node 1: each frame crosses"],
        ),
        (
            [Part("device", frozenset({2}), {}, {0: 1000.0, 1: 24.0})],
            ["the device is on NUMA node 0, 24 MiB of its huge pages on node 1: reserve pages on its own node"],
        ),
        # Any processor: its node is unknown.
        ([Part("generator", frozenset()), Part("device", frozenset({3}), {"ens1f0": 1})], []),
    ],
)
def test_what_works_across_nodes_is_named(parts: list[Part], words: list[str]) -> None:
    found = locality_warnings(NODES, parts, PAIRS)
    assert len(found) == len(words)
    for text, word in zip(found, words, strict=True):
        assert word in text


def test_a_machine_with_one_node_gives_no_warning() -> None:
    one = NumaNodes.of(FabricatedHost({f"{NODE}/node0/cpulist": "0-11"}, {}))
    assert locality_warnings(one, [Part("device", frozenset({2, 3}), {"ens1f0": 1})], PAIRS) == []
    assert locality_warnings(NumaNodes.of(FabricatedHost({}, {})), [Part("device", frozenset({2, 3}))], PAIRS) == []


@pytest.mark.parametrize(("processor", "memory"), [(0, "1024"), (3, "0,1024")])
def test_open_vswitch_has_its_memory_on_the_node_of_its_processors(processor: int, memory: str) -> None:
    device = OvsDpdk(OvsDpdkSettings(), Placement(FabricatedHost(TWO, {}), frozenset({processor})))
    settings = device._start_settings()
    assert (settings["dpdk-socket-mem"], settings["dpdk-socket-limit"]) == (memory, memory)


def test_this_machine_is_read(tmp_path: Path) -> None:
    host = LocalHost(tmp_path)
    try:
        if not Path(NODE).is_dir():
            pytest.skip("a kernel without NUMA")
        processors = frozenset().union(*NumaNodes.of(host).processors.values())
        assert len(processors) >= 1
        process = host.start("sleeper", [sys.executable, "-c", "input()"])
        assert huge_pages_mib(host, [process]) == {}
        if host.find_program("ethtool") and subprocess.run(["ethtool", "-k", "lo"], capture_output=True, check=False).returncode == 0:
            assert "tx-checksumming on" in offloads(host, "lo")
        assert offloads(host, "no-such-device") == offloads(host, "/run/socket") == ""
    finally:
        host.close()
