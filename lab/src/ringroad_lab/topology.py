"""Topologies: the ports of a device under test, their far ends, and the paths of frames.

P2P is generator, device, generator. PVP has a guest in between, PVVP two guests in a row (RFC 8204, and earlier ETSI and OPNFV plans).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ringroad_lab.dut.interface import Rule


class Topology(StrEnum):
    """Path of frames."""

    P2P = "P2P"
    PVP = "PVP"
    PVVP = "PVVP"

    @property
    def guests(self) -> int:
        """Number of guests in the path."""
        return {Topology.P2P: 0, Topology.PVP: 1, Topology.PVVP: 2}[self]


@dataclass(frozen=True)
class Wiring:
    """A topology, as ports and rules of the device under test."""

    physical_ports: tuple[int, int]
    """Numbers of the generator's ports."""
    guest_ports: tuple[tuple[int, int], ...]
    """Numbers of the two ports of each guest, in the order of the path."""
    rules: tuple[Rule, ...]


def wire(topology: Topology) -> Wiring:
    """Return the wiring of a topology: ports 1 and 2 are physical, guests have 3 and 4, 5 and 6."""
    guest_ports = tuple((3 + 2 * guest, 4 + 2 * guest) for guest in range(topology.guests))
    path = [1, *(port for pair in guest_ports for port in pair), 2]
    rules = []
    for left, right in zip(path[::2], path[1::2], strict=True):
        rules += [Rule(left, right), Rule(right, left)]
    return Wiring((1, 2), guest_ports, tuple(rules))
