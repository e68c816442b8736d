"""Flow entries for source addresses, and how devices get the entries of a set together with their usual rules."""

from __future__ import annotations

from collections import Counter

import pytest

from flow_matching import matches
from ringroad_lab.dut.open_flow import flow_set_flows
from ringroad_lab.flow_set.address_flows import DESTINATION, FIRST_SOURCE, address_entries
from ringroad_lab.flow_set.interface import FrameHeader
from ringroad_lab.topology import Topology, wire
from ringroad_lab.trial import FlowSet, FlowShape


@pytest.mark.parametrize("masks", [1, 20])
def test_each_source_address_has_its_own_entry(masks: int) -> None:
    entries = list(address_entries(FlowSet(entries=60, masks=masks)))
    for number, entry in enumerate(entries):
        header = FrameHeader(FIRST_SOURCE + number, DESTINATION, 1024, 1024)
        assert [each for each in entries if matches(each, header, "udp")] == [entry]
    lengths = Counter(entry.match.rpartition("/")[2] for entry in entries)
    assert list(lengths.values()) == [60 // masks] * masks


@pytest.mark.parametrize("topology", Topology)
def test_a_set_replaces_the_rule_for_the_first_port(topology: Topology) -> None:
    rules = wire(topology).rules
    lines = flow_set_flows(rules, FlowSet(shape=FlowShape.ACL, entries=30)).splitlines()
    out = rules[0].out_port
    assert sum(f",in_port=1,{protocol}" in line for line in lines for protocol in ("udp", "tcp", "icmp", "ip")) == 30
    assert all(line.endswith(f"actions=output:{out}") for line in lines[:30])
    assert lines[30:] == [f"priority=100,in_port={rule.in_port},actions=output:{rule.out_port}" for rule in rules[1:]]


def test_the_white_list_guards_the_second_port() -> None:
    lines = flow_set_flows(wire(Topology.P2P).rules, FlowSet(white_list=True)).splitlines()
    assert lines[1:] == [
        "priority=40,in_port=2,tcp,tp_dst=80,actions=output:1",
        "priority=30,in_port=2,ip,nw_src=10.0.0.5,actions=output:1",
        "priority=20,in_port=2,tcp,tp_src=12345,actions=output:1",
        "priority=10,in_port=2,actions=drop",
    ]
