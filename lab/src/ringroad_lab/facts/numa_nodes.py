"""The NUMA nodes of a machine, and a warning where what works together lies on different ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from ringroad_lab.facts.memory import NODE
from ringroad_lab.facts.network_cards import NET
from ringroad_lab.host.interface import Host, Process
from ringroad_lab.host.sysfs import read_files
from ringroad_lab.sandbox.processor_set import read_cpu_list

_PAGES_OF_NODE = re.compile(r" N(\d+)=(\d+)(?=.* kernelpagesize_kB=(\d+))")
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_INTERFACE = re.compile(r"[A-Za-z0-9_.-]{1,15}")


@dataclass(frozen=True)
class NumaNodes:
    """The nodes of a machine: sysfs, /sys/devices/system/node."""

    processors: Mapping[int, frozenset[int]]
    """By node."""

    @classmethod
    def of(cls, host: Host) -> NumaNodes:
        """Read them. A kernel without NUMA has none.

        Raises:
            HostError: the host cannot be reached.
        """
        files = read_files(host, (f"{NODE}/node[0-9]*/cpulist",))
        found = {re.fullmatch(rf"{NODE}/node(\d+)/cpulist", path): text for path, text in files.items()}
        return cls({int(path[1]): read_cpu_list(text) for path, text in found.items() if path})

    def of_processors(self, processors: Set[int]) -> frozenset[int]:
        """Return the nodes of processors."""
        return frozenset(node for node, own in self.processors.items() if own & processors)


def node_of_card(host: Host, card: str) -> int | None:
    """Return the node of a network card, by its interface or its PCI address; None: unknown, or the machine has one node only.

    Raises:
        HostError: the host cannot be reached.
    """
    if _PCI_ADDRESS.fullmatch(card):
        path = f"/sys/bus/pci/devices/{card}/numa_node"
    elif _INTERFACE.fullmatch(card):
        path = f"{NET}/{card}/device/numa_node"
    else:
        return None
    text = host.run(["cat", path], check=False).stdout.strip()
    return int(text) if text.isdecimal() else None


def huge_pages_mib(host: Host, processes: Sequence[Process]) -> dict[int, float]:
    """Return the huge pages of processes by node, MiB, as numa(7) has them: DPDK's memory and a guest's.

    Raises:
        HostError: the host cannot be reached.
    """
    found: dict[int, float] = {}
    for process in processes:
        for line in host.run(["cat", f"/proc/{process.pid}/numa_maps"], check=False).stdout.splitlines():
            if " huge " in line:
                for node, pages, page_kib in _PAGES_OF_NODE.findall(line):
                    found[int(node)] = found.get(int(node), 0.0) + int(pages) * int(page_kib) / 1024
    return found


@dataclass(frozen=True)
class Part:
    """A part of a test setup on one machine."""

    name: str
    processors: frozenset[int]
    cards: Mapping[str, int | None] = field(default_factory=dict)
    """The nodes of its network cards by name."""
    huge_pages_mib: Mapping[int, float] = field(default_factory=dict)
    """By node."""


def locality_warnings(nodes: NumaNodes, parts: Sequence[Part], pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return a sentence for each place where frames cross between the nodes of a machine. `pairs` are parts that share memory."""
    if len(nodes.processors) < 2:
        return []
    homes = {part.name: own for part in parts if (own := nodes.of_processors(part.processors))}
    found = []
    for part in parts:
        home = homes.get(part.name)
        if home is None:
            continue
        where = f"the {part.name} is on NUMA node {_list(home)}"
        if len(home) > 1:
            found.append(f"the processors of the {part.name} are on NUMA nodes {_list(home)}: its threads use memory of both")
        for card, node in part.cards.items():
            if node is not None and home != {node}:
                found.append(f"{where}, its card {card} on node {node}: each frame crosses between them")
        away = {node: mib for node, mib in part.huge_pages_mib.items() if node not in home and mib >= 1}
        if away:
            pages = f"{sum(away.values()):.0f} MiB of its huge pages on node {_list(away.keys())}"
            found.append(f"{where}, {pages}: reserve pages on its own node before the run")
    for one, other in pairs:
        if one in homes and other in homes and homes[one].isdisjoint(homes[other]):
            found.append(
                f"the {one} is on NUMA node {_list(homes[one])}, the {other} on node {_list(homes[other])}: "
                f"the frames in their memory cross between them"
            )
    return [f"{text}; `cpus` chooses the processors" for text in found]


def _list(nodes: Set[int]) -> str:
    return " and ".join(map(str, sorted(nodes)))
