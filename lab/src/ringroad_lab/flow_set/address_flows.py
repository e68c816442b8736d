"""Flow entries for a number of source addresses, with a number of masks."""

from __future__ import annotations

from collections.abc import Iterator

from ringroad_lab.flow_set.interface import ADDRESS_BITS, FlowEntry, address_text, prefix_text
from ringroad_lab.trial import FlowSet

# Sources are 10.0.0.1 and the following addresses; the destination network is from RFC 2544, appendix C.2.2.
FIRST_SOURCE = 0x0A_00_00_01
DESTINATION = 0xC6_13_00_01
PRIORITY = 100


def address_entries(flow_set: FlowSet) -> Iterator[FlowEntry]:
    """Yield the entries: each matches one source address; the prefix lengths of the destination take turns."""
    destinations = [prefix_text(DESTINATION, ADDRESS_BITS - number) for number in range(flow_set.masks)]
    for number in range(flow_set.entries):
        destination = destinations[number % flow_set.masks]
        yield FlowEntry(f"udp,nw_src={address_text(FIRST_SOURCE + number)},nw_dst={destination}", PRIORITY)
