"""The parts of a flow set: entries for a flow table, and headers for frames."""

from __future__ import annotations

import socket
from dataclasses import dataclass

ADDRESS_BITS = 32


@dataclass(frozen=True)
class FlowEntry:
    """An entry, without the ingress port."""

    match: str
    """Match in the syntax of ovs-ofctl(8): `udp,nw_src=10.0.0.1`; empty: every frame."""
    priority: int
    forwards: bool = True
    """Whether the entry forwards its frames; else it drops them."""


@dataclass(frozen=True)
class FrameHeader:
    """The fields of a frame with IPv4 and ports."""

    source: int
    destination: int
    source_port: int
    destination_port: int


def address_text(address: int) -> str:
    """Return an IPv4 address in dotted decimal notation."""
    return socket.inet_ntoa(address.to_bytes(4))


def address_mask(bits: int) -> int:
    """Return the mask of a prefix of this length."""
    return (1 << ADDRESS_BITS) - (1 << (ADDRESS_BITS - bits))


def prefix_text(address: int, bits: int) -> str:
    """Return a prefix in CIDR notation: `10.0.0.0/8`."""
    return f"{address_text(address & address_mask(bits))}/{bits}"
