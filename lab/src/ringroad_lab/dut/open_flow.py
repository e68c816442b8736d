"""OpenFlow rules in the format of ovs-ofctl(8) and `ringroad flows`, and the settings of devices that support them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ringroad_lab.dut.interface import DutSettings, PortNumber, Rule
from ringroad_lab.errors import DutError
from ringroad_lab.flow_set.acl_rules import acl_entries
from ringroad_lab.flow_set.address_flows import address_entries
from ringroad_lab.flow_set.explosion import white_list
from ringroad_lab.flow_set.interface import FlowEntry
from ringroad_lab.generator.traffic import FIRST_UDP_PORT, MANY_FLOWS_ADDRESSES, UDP_PORTS
from ringroad_lab.trial import FlowSet, FlowShape, VlanId

# Bit for a present tag in set_field of `vlan_vid` (OpenFlow 1.3, OFPVID_PRESENT).
VLAN_PRESENT = 0x1000
# Time limit for loading a table: its entries at this minimum rate, plus LOADING_S.
LEAST_ENTRIES_PER_S = 1_000
LOADING_S = 60.0


class OpenFlowSettings(DutSettings):
    """Common settings of devices that support OpenFlow rules."""

    flows_file: Path | None = None
    """With `rules`: the user's flows in place of the lab's, a file for ovs-ofctl(8). Port numbers are those of the setup: the generator
    has 1 and 2, guests 3 and 4, 5 and 6."""
    rule_set: Annotated[int, Field(ge=0, le=200_000)] = 0
    """With `rules`: the number of rules in place of each rule. Each matches one of the generator's UDP flows; with as many rules as `flows`
    no frame is lost."""
    access_vlans: dict[PortNumber, VlanId] = {}
    """VLAN of each access port: its frames are untagged there and tagged at the other ports; the switch adds and removes the tag."""


def rule_flows(title: str, settings: OpenFlowSettings, rules: Sequence[Rule]) -> str:
    """Return the flows of a device with `rules`: the user's own, or the lab's.

    Raises:
        DutError: the user's file cannot be read.
    """
    if settings.flows_file is not None:
        return _own_flows(title, settings.flows_file)
    return forwarding_flows(rules, settings.access_vlans, settings.rule_set)


def flows_file_version(title: str, settings: OpenFlowSettings) -> dict[str, str]:
    """Return the checksum of the user's flows, if configured: it identifies the flows when a run is repeated.

    Raises:
        DutError: the file cannot be read.
    """
    if settings.flows_file is None:
        return {}
    return {"flows_file (SHA-256)": hashlib.sha256(_own_flows(title, settings.flows_file).encode()).hexdigest()[:16]}


def _own_flows(title: str, file: Path) -> str:
    try:
        return file.expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise DutError(f"{title}: flows_file {file} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def flow_set_flows(rules: Sequence[Rule], flow_set: FlowSet) -> str:
    """Return flows with the entries of a set in place of the rule for the generator's port 1; the other rules are unchanged.

    Args:
        rules: Both directions of each pair of joined ports, the direction from the generator's port 1 first.
        flow_set: Shape and number of the entries; a white list replaces the rule for the generator's port 2.
    """
    if flow_set.shape is FlowShape.ACL:
        entries: Iterable[FlowEntry] = acl_entries(flow_set.entries, flow_set.seed)
    else:
        entries = address_entries(flow_set)
    first, *others = rules
    lines = [_flow(first, entry) for entry in entries]
    for rule in others:
        guards = list(white_list()) if flow_set.white_list and rule.in_port == 2 else [FlowEntry("", 100)]
        lines += [_flow(rule, entry) for entry in guards]
    return "".join(lines)


def loading_timeout_s(flows: str) -> float:
    """Return the time limit for loading flows into a table."""
    return LOADING_S + flows.count("\n") / LEAST_ENTRIES_PER_S


def _flow(rule: Rule, entry: FlowEntry) -> str:
    match = f",{entry.match}" if entry.match else ""
    actions = f"output:{rule.out_port}" if entry.forwards else "drop"
    return f"priority={entry.priority},in_port={rule.in_port}{match},actions={actions}\n"


def forwarding_flows(rules: Sequence[Rule], access_vlans: Mapping[int, int], rule_set: int) -> str:
    """Return flows that implement the rules.

    Args:
        rules: Both directions of each pair of joined ports, the direction from the generator's port 1 to its port 2 first.
        access_vlans: VLAN of each access port, whose frames are untagged; frames are tagged at the other ports.
        rule_set: Number of flows in place of each rule, one for each of the UDP flows that the generator offers.
    """
    lines = []
    for index, rule in enumerate(rules):
        tag, actions = _vlan(access_vlans.get(rule.in_port, 0), access_vlans.get(rule.out_port, 0))
        for flow in _udp_flows(rule_set, index % 2):
            match = ",".join(filter(None, (f"in_port={rule.in_port}", tag, flow)))
            lines.append(f"{match},actions={actions}output:{rule.out_port}\n")
    return "".join(lines)


def _vlan(incoming: int, outgoing: int) -> tuple[str, str]:
    """Return the match and the actions for frames between two ports; 0: the port is in no VLAN."""
    if incoming == outgoing:
        return "", ""
    if outgoing:
        return f"dl_vlan={outgoing}", "pop_vlan,"
    return "", f"push_vlan:0x8100,set_field:{VLAN_PRESENT | incoming}->vlan_vid,"


def _udp_flows(number: int, direction: int) -> Iterator[str]:
    """Generate matches of the generator's flows. They differ in the UDP source port; if there are too many, in the source address."""
    if not number:
        yield ""
    elif number <= UDP_PORTS:
        for flow in range(number):
            yield f"udp,udp_src={FIRST_UDP_PORT + flow}"
    else:
        first = int.from_bytes(map(int, MANY_FLOWS_ADDRESSES[direction].split(".")))
        # The learning frames have the port's own address.
        yield f"udp,nw_src=198.{18 + direction}.0.1"
        for flow in range(number):
            yield f"udp,nw_src={'.'.join(map(str, (first + flow).to_bytes(4)))}"
