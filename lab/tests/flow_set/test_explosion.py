"""The attack on tuple space search: the bits that its frames share with the rules of the white list."""

from __future__ import annotations

from flow_matching import deciding
from ringroad_lab.flow_set import explosion
from ringroad_lab.flow_set.explosion import attack_headers, white_list
from ringroad_lab.flow_set.interface import FrameHeader


def test_the_list_forwards_allowed_frames_and_drops_all_others() -> None:
    entries = list(white_list())

    def passes(source: int, source_port: int, destination_port: int) -> bool:
        found = deciding(entries, FrameHeader(source, 1, source_port, destination_port), "tcp")
        assert found is not None
        return found.forwards

    assert passes(1, 1, 80)
    assert passes(0x0A_00_00_05, 1, 1)
    assert passes(1, 12_345, 1)
    assert not passes(1, 1, 1)
    assert all(not passes(header.source, header.source_port, header.destination_port) for header in attack_headers())


def test_each_frame_needs_its_own_mask() -> None:
    # The number of bits of each field that distinguish the frame from the rule: a cache must store them.
    def bits(value: int, allowed: int, width: int) -> int:
        return width - (value ^ allowed).bit_length()

    masks = {
        (
            bits(header.source, explosion.ALLOWED_SOURCE, 32),
            bits(header.source_port, explosion.ALLOWED_SOURCE_PORT, 16),
            bits(header.destination_port, explosion.ALLOWED_DESTINATION_PORT, 16),
        )
        for header in attack_headers()
    }
    assert len(masks) == len(attack_headers()) == 32 * 16 * 16
