"""The attack on tuple space search: a white list, and frames, nearly each of which adds a mask to the cache of the classifier.

For a frame that no rule of the list matches, a caching classifier stores the fewest bits that distinguish it from the rules: the first
bits of each field up to the bit that differs. So there are as many masks as combinations of such lengths, 16 * 32 * 16 here, and each
further frame is compared under all of them (L. Csikor et al., "Tuple Space Explosion: A Denial-of-Service Attack Against a Software Packet
Classifier", CoNEXT 2019; CVE-2019-25076). Any user can send the frames, and a low rate suffices: the paper's attacker needs a few Mbit/s.
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
# A prime number of addresses, from 20.0.0.0, so that no two frames of a trial have the same headers and an exact match cache is useless.
FIRST_ATTACKED = 0x14_00_00_00
ATTACKED = 65_521


def white_list() -> Iterator[FlowEntry]:
    """Yield the entries of the list; the last one drops all frames that no other entry allows."""
    yield FlowEntry(f"tcp,tp_dst={ALLOWED_DESTINATION_PORT}", 40)
    yield FlowEntry(f"ip,nw_src={address_text(ALLOWED_SOURCE)}", 30)
    yield FlowEntry(f"tcp,tp_src={ALLOWED_SOURCE_PORT}", 20)
    yield FlowEntry("", 10, forwards=False)


def attack_headers(seed: int = 1) -> list[FrameHeader]:
    """Return headers that the list drops: each differs from the three rules first at its own triple of bits; later bits are random."""
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
    """Return a value that has the bits of the allowed value before a position, the inverted bit there, and random bits after it."""
    behind = bits - place - 1
    return (allowed >> behind ^ 1) << behind | draw.getrandbits(bits) & ((1 << behind) - 1)
