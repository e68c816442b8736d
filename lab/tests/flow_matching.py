"""Parses flow entries to match headers against them. Written from ovs-fields(7), independently of the code that writes the entries."""

from __future__ import annotations

from ringroad_lab.flow_set.interface import FlowEntry, FrameHeader


def matches(entry: FlowEntry, header: FrameHeader, protocol: str) -> bool:
    """Return whether an entry matches a `udp` or `tcp` frame with this header."""
    fields = {"nw_src": header.source, "nw_dst": header.destination, "tp_src": header.source_port, "tp_dst": header.destination_port}
    for part in filter(None, entry.match.split(",")):
        name, _, wanted = part.partition("=")
        if not wanted:
            if name not in ("ip", protocol):
                return False
            continue
        value, _, mask = wanted.partition("/")
        if name.startswith("nw_"):
            number = int.from_bytes(map(int, value.split(".")))
            ignored_bits = 32 - int(mask or 32)
            if number >> ignored_bits != fields[name] >> ignored_bits:
                return False
        elif (int(value, 0) ^ fields[name]) & int(mask or "0xffff", 0):
            return False
    return True


def deciding(entries: list[FlowEntry], header: FrameHeader, protocol: str) -> FlowEntry | None:
    """Return the matching entry with the highest priority."""
    return max((entry for entry in entries if matches(entry, header, protocol)), key=lambda entry: entry.priority, default=None)
