"""The attack on tuple space search: a white list, and frames that have a cache of its classifier grow by a mask with nearly each.

A classifier that caches what it decided remembers for a frame that no rule of the list takes as few bits as tell it from the rules: the
first bits of each field up to the one that differs. So there are as many masks as products of such lengths, 16 * 32 * 16 here, and each
further frame is compared by all of them (L. Csikor et al., "Tuple Space Explosion: A Denial-of-Service Attack Against a Software Packet
Classifier", CoNEXT 2019; CVE-2019-25076). The frames are what anybody may send, and slow: the paper's attacker needs a few Mbit/s.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

from ringroad_lab.flow_set.acl_rules import PORT_BITS
from ringroad_lab.flow_set.interface import ADDRESS_BITS, FlowEntry, FrameHeader, address_text

ALLOWED_DESTINATION_PORT = 80
ALLOWED_SOURCE = 0x0A_00_00_05
ALLOWED_SOURCE_PORT = 12_345
# 20.0.0.0 and behind: a prime number of them, so that no two frames of a trial have the same headers and an exact match cache helps nobody.
FIRST_ATTACKED = 0x14_00_00_00
ATTACKED = 65_521


def white_list() -> Iterator[FlowEntry]:
    """Go through the entries of the list, the last of which drops what none allows."""
    yield FlowEntry(f"tcp,tp_dst={ALLOWED_DESTINATION_PORT}", 40)
    yield FlowEntry(f"ip,nw_src={address_text(ALLOWED_SOURCE)}", 30)
    yield FlowEntry(f"tcp,tp_src={ALLOWED_SOURCE_PORT}", 20)
    yield FlowEntry("", 10, forwards=False)


def attack_headers(seed: int = 1) -> list[FrameHeader]:
    """Return headers that the list drops: each differs from the three rules first at another triple of bits, and has random ones behind."""
    draw = random.Random(seed)
    places = list(product(range(ADDRESS_BITS), range(PORT_BITS), range(PORT_BITS)))
    draw.shuffle(places)
    return [
        FrameHeader(
            _differing(draw, ALLOWED_SOURCE, ADDRESS_BITS, source),
            FIRST_ATTACKED,
            _differing(draw, ALLOWED_SOURCE_PORT, PORT_BITS, source_port),
            _differing(draw, ALLOWED_DESTINATION_PORT, PORT_BITS, destination_port),
        )
        for source, source_port, destination_port in places
    ]


def _differing(draw: random.Random, allowed: int, bits: int, place: int) -> int:
    """Return a value whose first bits are those of the allowed one, up to a place; the bit there is the other, and the rest is random."""
    behind = bits - place - 1
    return (allowed >> behind ^ 1) << behind | draw.getrandbits(bits) & ((1 << behind) - 1)
