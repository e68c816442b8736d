"""A cable between a port of the device under test and the generator or a guest."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CableKind(StrEnum):
    """What a cable is made of."""

    VETH = "veth"
    """A veth pair: an interface at each end."""
    VHOST_USER = "vhost-user"
    """A UNIX socket; the device under test is the back end, the other end is a virtio network card."""
    MEMIF = "memif"
    """A UNIX socket; shared memory packet interface."""
    TAP = "tap"
    """A TAP interface at the device's end, QEMU at the other."""
    NIC = "nic"
    """A network card at each end, joined by a real cable."""


MEMORY_CABLES = frozenset({CableKind.VHOST_USER, CableKind.MEMIF})
"""Those whose rings both ends share: the device itself takes frames out of the generator's ring, and puts them into it."""


@dataclass(frozen=True)
class Cable:
    """One cable, laid."""

    kind: CableKind
    name: str
    """Unique in the run, at most 8 characters: interfaces and sockets are called after it."""
    dut_end: str
    """What the device under test plugs in: the name of an interface, or the path of a socket."""
    far_end: str
    """What the generator or guest plugs in: the same path for a socket, the other interface of a pair."""
    is_dut_server: bool = False
    """Of sockets: whether the device under test makes the socket and listens."""
    queues: int = 1
    """Queue pairs."""
    dut_netns: str | None = None
    """Network namespace of `dut_end`, where that is not the test bed's own."""
