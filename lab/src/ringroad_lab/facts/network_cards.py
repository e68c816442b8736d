"""Facts of network cards, and of interrupts and the bridge's netfilter."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ringroad_lab.facts.offloads import offloads
from ringroad_lab.host.interface import Host
from ringroad_lab.host.sysfs import UNKNOWN, fact

NET = "/sys/class/net"
_DEVICE = re.compile(rf"{NET}/([^/]+)/device/uevent")
_STACK = (
    "/proc/sys/net/bridge/bridge-nf-call-iptables",
    "/proc/sys/net/core/bpf_jit_enable",
    "/proc/sys/net/core/busy_poll",
    "/proc/sys/net/core/netdev_max_backlog",
)
PATTERNS = (
    f"{NET}/*/device/uevent",
    f"{NET}/*/device/numa_node",
    f"{NET}/*/speed",
    f"{NET}/*/mtu",
    f"{NET}/*/operstate",
    "/proc/irq/default_smp_affinity",
    "/proc/irq/[0-9]*/smp_affinity_list",
    *_STACK,
)


def card_facts(files: Mapping[str, str], host: Host) -> dict[str, str]:
    """Return facts of each interface that has a device; interfaces without a device are not cards."""
    facts = {}
    for path, uevent in sorted(files.items()):
        if not (found := _DEVICE.fullmatch(path)):
            continue
        interface = found[1]
        values = dict(line.partition("=")[::2] for line in uevent.splitlines())
        output = host.run(["ethtool", "-i", interface], check=False).stdout if host.find_program("ethtool") else ""
        driver = dict(line.partition(": ")[::2] for line in output.splitlines())
        parts = {
            "driver": values.get("DRIVER") or driver.get("driver") or UNKNOWN,
            "driver version": driver.get("version", "").strip() or UNKNOWN,
            "firmware": driver.get("firmware-version", "").strip() or UNKNOWN,
            "PCI": " ".join(filter(None, [values.get("PCI_ID"), values.get("PCI_SLOT_NAME")])) or UNKNOWN,
            "NUMA node": fact(files, f"{NET}/{interface}/device/numa_node"),
            "speed": _speed(fact(files, f"{NET}/{interface}/speed")),
            "MTU": fact(files, f"{NET}/{interface}/mtu"),
            "state": fact(files, f"{NET}/{interface}/operstate"),
        }
        facts[interface] = ", ".join(f"{name} {value}" for name, value in parts.items())
    return facts


def offload_facts(files: Mapping[str, str], host: Host) -> dict[str, str]:
    """Return the offloads of each interface that has a device, as they are before the run."""
    interfaces = sorted(found[1] for path in files if (found := _DEVICE.fullmatch(path)))
    return {interface: offloads(host, interface) or UNKNOWN for interface in interfaces}


def network_facts(files: Mapping[str, str]) -> dict[str, str]:
    """Return settings of the kernel's network stack, in the namespace of the host's commands."""
    return {path.rpartition("/")[2]: fact(files, path) for path in _STACK}


def interrupt_facts(files: Mapping[str, str]) -> dict[str, str]:
    """Return the processors of interrupts: the number of interrupts for each set of processors."""
    counts: dict[str, int] = {}
    for path, cpus in files.items():
        if path.startswith("/proc/irq/") and path.endswith("/smp_affinity_list"):
            counts[cpus] = counts.get(cpus, 0) + 1
    each = ", ".join(f"{count} to {cpus}" for cpus, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    return {
        "interrupts allowed on processors": each or UNKNOWN,
        "default for new interrupts": fact(files, "/proc/irq/default_smp_affinity"),
    }


def _speed(text: str) -> str:
    return f"{text} Mbit/s" if text.isdecimal() else UNKNOWN
