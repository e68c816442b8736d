"""Rules like those of an access control list: their shape, and frames for each of them."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow_matching import matches
from ringroad_lab.flow_set.acl_rules import MOST_ENTRIES, acl_entries, acl_headers, acl_rules, port_masks

ENTRIES = 2000


@given(st.integers(0, 65_535), st.integers(0, 65_535))
def test_masks_match_all_ports_of_a_range_and_no_other(one: int, other: int) -> None:
    first, last = min(one, other), max(one, other)
    found = port_masks(first, last)
    reached = []
    for mask in found:
        free = 65_535 & ~mask.mask
        assert not mask.value & free
        # A mask leaves only the last bits free.
        assert free & (free + 1) == 0
        reached.append((mask.value, mask.value + free))
    assert reached[0][0] == first
    assert reached[-1][1] == last
    assert all(end + 1 == begin for (_, end), (begin, _) in pairwise(reached))
    assert len(found) <= 30


@pytest.mark.parametrize(
    ("ports", "text"),
    [
        pytest.param((0, 65_535), [""], id="any"),
        pytest.param((80, 80), ["tp_dst=80"], id="one"),
        pytest.param((1024, 2047), ["tp_dst=0x400/0xfc00"], id="a-power-of-two"),
        pytest.param((5, 8), ["tp_dst=5", "tp_dst=0x6/0xfffe", "tp_dst=8"], id="odd-ends"),
    ],
)
def test_a_range_is_written_as_masks(ports: tuple[int, int], text: list[str]) -> None:
    assert [mask.field("tp_dst") for mask in port_masks(*ports)] == text


@pytest.mark.parametrize("entries", [1, 7, ENTRIES])
def test_a_list_has_exactly_the_requested_entries(entries: int) -> None:
    assert len(list(acl_entries(entries, seed=3))) == entries


def test_a_seed_determines_the_list() -> None:
    one, same, other = ([entry.match for entry in acl_entries(ENTRIES, seed)] for seed in (5, 5, 6))
    acl_rules.cache_clear()
    assert one == same == [entry.match for entry in acl_entries(ENTRIES, 5)]
    assert len(set(one) & set(other)) < ENTRIES / 10


def test_rules_are_unique_and_narrow_rules_come_first() -> None:
    rules = acl_rules(ENTRIES, 1)
    assert len(set(rules)) == len(rules)
    scopes = [rule.scope_bits for rule in rules]
    assert scopes == sorted(scopes)
    priorities = [entry.priority for entry in acl_entries(ENTRIES, 1)]
    assert priorities == sorted(priorities, reverse=True)
    # One for each rule, however many entries it needs.
    assert len(set(priorities)) == len(rules)


def test_rules_have_the_shape_of_access_control_lists() -> None:
    rules = acl_rules(ENTRIES, 1)
    protocols = Counter(rule.protocol for rule in rules)
    assert protocols.most_common(1)[0][0] == "udp"
    assert set(protocols) == {"udp", "tcp", "icmp", "ip"}
    assert len({rule.source.bits for rule in rules}) > 5
    assert len({rule.destination.bits for rule in rules}) > 5
    assert any(rule.destination_ports[0] < rule.destination_ports[1] < 65_535 for rule in rules)
    # Ranges take several entries each.
    assert ENTRIES / 2 < len(rules) < ENTRIES
    # Prefixes nest: a few networks of 16 bits hold many of them.
    networks = Counter(rule.destination.address >> 16 for rule in rules if rule.destination.bits >= 16)
    assert sum(count for _, count in networks.most_common(len(networks) // 10)) > len(rules) / 4


def test_each_udp_entry_has_a_matching_frame() -> None:
    entries = [entry for entry in acl_entries(200, 2) if entry.match.startswith(("udp", "ip"))]
    headers = acl_headers(200, 2)
    assert len(headers) == len(entries)
    for entry in entries:
        assert any(matches(entry, header, "udp") for header in headers), entry
    assert all(any(matches(entry, header, "udp") for entry in entries) for header in headers)


@pytest.mark.skipif(shutil.which("ovs-ofctl") is None, reason="ovs-ofctl is not installed (openvswitch-common)")
def test_open_vswitch_reads_all_entries() -> None:
    flows = "".join(f"priority={entry.priority},{entry.match},actions=output:2\n" for entry in acl_entries(ENTRIES, 1))
    argv = ["ovs-ofctl", "-O", "OpenFlow13", "parse-flows", "/dev/stdin"]
    parsed = subprocess.run(argv, input=flows, capture_output=True, text=True, check=True)
    assert parsed.stdout.count("ADD priority=") == ENTRIES


def test_more_rules_than_priorities_are_rejected() -> None:
    with pytest.raises(ValueError, match="at most 60000 entries, not 60001"):
        acl_rules(MOST_ENTRIES + 1, 1)
