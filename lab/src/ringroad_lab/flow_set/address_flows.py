"""Flow entries for so many source addresses, by so many masks."""

from __future__ import annotations

from collections.abc import Iterator

from ringroad_lab.flow_set.interface import ADDRESS_BITS, FlowEntry, address_text, prefix_text
from ringroad_lab.trial import FlowSet

# 10.0.0.1 and the addresses behind it; RFC 2544, appendix C.2.2, has the network of the destination.
FIRST_SOURCE = 0x0A_00_00_01
DESTINATION = 0xC6_13_00_01
PRIORITY = 100


def address_entries(flow_set: FlowSet) -> Iterator[FlowEntry]:
    """Go through the entries: each matches one source address, and in turn a longer or shorter prefix of the destination."""
    destinations = [prefix_text(DESTINATION, ADDRESS_BITS - number) for number in range(flow_set.masks)]
    for number in range(flow_set.entries):
        destination = destinations[number % flow_set.masks]
        yield FlowEntry(f"udp,nw_src={address_text(FIRST_SOURCE + number)},nw_dst={destination}", PRIORITY)
