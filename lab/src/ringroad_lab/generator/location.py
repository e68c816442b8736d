"""Locations of Ringroad's ports, for the generator."""

from __future__ import annotations

from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.errors import ScenarioError


def generator_location(cable: Cable) -> str:
    """Name of the port that plugs in at a cable's far end (docs/port-names.md).

    Raises:
        ScenarioError: the generator has no port for such a cable.
    """
    role = "client" if cable.is_dut_server else "server"
    match cable.kind:
        case CableKind.VETH:
            return f"xdp:{cable.far_end}@queues={cable.queues}"
        case CableKind.NIC:
            # By the best mechanism that the card's driver has.
            return f"netmap:{cable.far_end}@queues={cable.queues},promisc=1"
        case CableKind.VHOST_USER:
            return f"virtio-user:{cable.far_end}@role={role},queues={cable.queues}"
        case CableKind.MEMIF:
            return f"memif:{cable.far_end}@role={role},id=0,queues={cable.queues}"
        case CableKind.TAP:
            raise ScenarioError("the generator has no port for a tap: use veth, vhost-user or memif as physical cables")
