"""Facts of machines: this machine, and a fabricated one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabricated_host import FabricatedHost
from ringroad_lab.facts.machine import is_same_machine, machine_facts
from ringroad_lab.host.local import LocalHost
from ringroad_lab.host.sysfs import UNKNOWN

CPU = "/sys/devices/system/cpu"
SERVER_FILES = {
    "/etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"',
    "/proc/cmdline": "BOOT_IMAGE=/vmlinuz isolcpus=2-11 nohz_full=2-11 default_hugepagesz=1G",
    "/proc/version": "Linux version 6.1.0 #1 SMP PREEMPT_DYNAMIC",
    "/proc/sys/kernel/osrelease": "6.1.0-18-amd64",
    "/proc/cpuinfo": "\n\n".join(
        f"processor\t: {n}\nmodel name\t: Xeon E5-2620 v3\ncpu family\t: 6\nmodel\t\t: 63\nstepping\t: 2\nmicrocode\t: 0x49\n"
        f"cpu MHz\t\t: 2400.000\nphysical id\t: {n % 2}\ncore id\t\t: {n // 2}\nflags\t\t: fpu sse2"
        for n in range(4)
    ),
    f"{CPU}/isolated": "2-11",
    f"{CPU}/intel_pstate/no_turbo": "1",
    f"{CPU}/cpu0/cpufreq/scaling_governor": "performance",
    f"{CPU}/cpu1/cpufreq/scaling_governor": "powersave",
    f"{CPU}/cpu0/cpufreq/scaling_max_freq": "3200000",
    f"{CPU}/cpu1/cpufreq/scaling_max_freq": "3200000",
    f"{CPU}/cpu0/cpuidle/state0/name": "POLL",
    f"{CPU}/cpu0/cpuidle/state1/name": "C1",
    f"{CPU}/cpu0/cpuidle/state1/disable": "1",
    f"{CPU}/vulnerabilities/meltdown": "Mitigation: PTI",
    "/proc/meminfo": "MemTotal:       67108864 kB\nMemAvailable:   33554432 kB\nSwapTotal:             0 kB",
    "/sys/devices/system/node/online": "0-1",
    "/sys/devices/system/node/node0/cpulist": "0,2",
    "/sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:       33554432 kB",
    "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "16",
    "/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages": "12",
    "/sys/kernel/mm/hugepages/hugepages-64kB/nr_hugepages": "0",
    "/sys/kernel/mm/hugepages/hugepages-64kB/free_hugepages": "0",
    "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "/sys/class/net/ens1f0/device/uevent": "DRIVER=ixgbe\nPCI_ID=8086:1528\nPCI_SLOT_NAME=0000:06:00.0",
    "/sys/class/net/ens1f0/device/numa_node": "0",
    "/sys/class/net/ens1f0/speed": "10000",
    "/sys/class/net/ens1f0/mtu": "1500",
    "/proc/irq/10/smp_affinity_list": "0-1",
    "/proc/irq/11/smp_affinity_list": "0-1",
    "/proc/irq/12/smp_affinity_list": "3",
    "/sys/class/dmi/id/board_vendor": "Supermicro",
    "/sys/class/dmi/id/board_name": "X10DRL",
}
SERVER_COMMANDS = {
    "ethtool -k ens1f0": "Features for ens1f0:\nrx-checksumming: on\ntx-checksumming: on\n\ttx-checksum-ip-generic: off [fixed]\n"
    "tcp-segmentation-offload: on\n\ttx-tcp6-segmentation: off [requested on]\nlarge-receive-offload: off [fixed]\nhighdma: on [fixed]\n",
    "ethtool -i ens1f0": "driver: ixgbe\nversion: 6.1.0\nfirmware-version: 0x80000389\n",
    "dmidecode --type memory": "Memory Device\n\tSize: 16 GB\n\tType: DDR4\n\tConfigured Memory Speed: 2133 MT/s\n"
    "Memory Device\n\tSize: 16 GB\n\tType: DDR4\n\tConfigured Memory Speed: 2133 MT/s\n"
    "Memory Device\n\tSize: No Module Installed\n",
    "systemd-detect-virt --vm": "none\n",
    "uname -n": "dut1\n",
}


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("machine", "name", "dut1"),
        ("machine", "board", "Supermicro X10DRL"),
        ("machine", "product", UNKNOWN),
        ("system", "name", "Debian GNU/Linux 12 (bookworm)"),
        ("processor", "microcode", "0x49"),
        ("processor", "sockets", "2"),
        ("processor", "cores", "4"),
        ("processor", "frequency governor", "cpu0: performance, cpu1: powersave"),
        ("processor", "greatest frequency", "3200 MHz"),
        ("processor", "frequency at the start", "2400.000 MHz"),
        ("processor", "turbo", "off"),
        ("processor", "C-states", "POLL, C1 (disabled)"),
        ("processor", "SMT", UNKNOWN),
        ("processors used", "dut", "2, 4"),
        ("processors used", "guests", "any"),
        ("memory", "total", "64.00 GiB"),
        ("memory", "modules", "2 x 16 GB DDR4, 2133 MT/s"),
        ("memory", "node0", "processors 0,2, 32.00 GiB"),
        ("huge pages", "1024 MiB", "16, 12 free"),
        ("huge pages", "64 KiB", "0, 0 free"),
        ("huge pages", "transparent", "madvise"),
        ("kernel", "release", "6.1.0-18-amd64"),
        ("kernel", "preemption", "PREEMPT_DYNAMIC"),
        ("kernel", "clock source", UNKNOWN),
        ("isolation", "isolcpus", "2-11"),
        ("isolation", "rcu_nocbs", "not set"),
        ("isolation", "isolated processors", "2-11"),
        ("isolation", "interrupts allowed on processors", "2 to 0-1, 1 to 3"),
        ("mitigations", "meltdown", "Mitigation: PTI"),
        ("network", "bridge-nf-call-iptables", UNKNOWN),
        (
            "offloads of network cards",
            "ens1f0",
            "rx-checksumming on, tx-checksumming on, tx-checksum-ip-generic off fixed, tcp-segmentation-offload on, "
            "tx-tcp6-segmentation off, large-receive-offload off fixed",
        ),
    ],
)
def test_facts_of_a_server(group: str, name: str, value: str) -> None:
    facts = machine_facts(FabricatedHost(SERVER_FILES, SERVER_COMMANDS), {"dut": frozenset({4, 2}), "guests": frozenset()})
    assert facts[group][name] == value


def test_facts_of_a_network_card() -> None:
    card = machine_facts(FabricatedHost(SERVER_FILES, SERVER_COMMANDS))["network cards"]["ens1f0"]
    for part in ("driver ixgbe", "driver version 6.1.0", "firmware 0x80000389", "PCI 8086:1528 0000:06:00.0", "speed 10000 Mbit/s"):
        assert part in card


def test_the_cycle_counter_is_reported_with_a_reason() -> None:
    def counters(commands: dict[str, str]) -> str:
        return machine_facts(FabricatedHost({}, commands))["counters"]["processor cycles"]

    command = "perf stat --field-separator , --event cycles true"
    assert counters({}) == "unknown: perf is not installed (linux-perf)"
    assert counters({"perf --version": ""}) == "unknown: perf ended with status 127"
    assert counters({command: ""}).startswith("none: ")


def test_unreadable_facts_are_unknown() -> None:
    facts = machine_facts(FabricatedHost({}, {}))
    values = {value for group in ("machine", "system", "processor", "memory", "mitigations") for value in facts[group].values()}
    assert values == {UNKNOWN}
    assert facts["isolation"]["isolcpus"] == UNKNOWN
    assert facts["isolation"]["isolated processors"] == UNKNOWN


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    made = LocalHost(tmp_path)
    yield made
    made.close()


def test_facts_of_this_machine(host: LocalHost) -> None:
    facts = machine_facts(host)
    assert facts["kernel"]["release"] == os.uname().release
    assert facts["machine"]["name"] == os.uname().nodename
    assert facts["kernel"]["parameters"] == Path("/proc/cmdline").read_text().strip()
    assert facts["processor"]["model"] != UNKNOWN
    assert facts["memory"]["total"].endswith(" GiB")
    assert all(isinstance(value, str) and value for group in facts.values() for value in group.values())


def test_a_machine_is_identified_by_its_id_or_else_by_its_name() -> None:
    here, renamed = ({"machine": {"name": name, "id": "1"}} for name in ("here", "renamed"))
    other, old = {"machine": {"name": "here", "id": "2"}}, {"machine": {"name": "here"}}
    assert is_same_machine(here, renamed)
    assert not is_same_machine(here, other)
    assert is_same_machine(here, old)
    assert not is_same_machine(renamed, old)
