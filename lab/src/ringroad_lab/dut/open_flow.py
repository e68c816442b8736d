"""OpenFlow rules for Open vSwitch, as ovs-ofctl(8) reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ringroad_lab.dut.interface import Rule
from ringroad_lab.generator.traffic import FIRST_UDP_PORT, MANY_FLOWS_ADDRESSES, UDP_PORTS

# Of a set `vlan_vid`: the bit that says that there is a tag (OpenFlow 1.3, OFPVID_PRESENT).
VLAN_PRESENT = 0x1000


def forwarding_flows(rules: Sequence[Rule], access_vlans: Mapping[int, int], rule_set: int) -> str:
    """Return flows that forward as the rules say.

    Args:
        rules: Both ways of each pair of joined ports, the way from the generator's port 1 to its port 2 first.
        access_vlans: VLAN of each port whose frames have no tag there; frames are tagged at the other ports.
        rule_set: So many flows in place of each rule, one for each of the UDP flows that the generator offers.
    """
    lines = []
    for index, rule in enumerate(rules):
        tag, actions = _vlan(access_vlans.get(rule.in_port, 0), access_vlans.get(rule.out_port, 0))
        for flow in _udp_flows(rule_set, index % 2):
            match = ",".join(filter(None, (f"in_port={rule.in_port}", tag, flow)))
            lines.append(f"{match},actions={actions}output:{rule.out_port}\n")
    return "".join(lines)


def _vlan(incoming: int, outgoing: int) -> tuple[str, str]:
    """Return the match and the actions of frames between two ports that are in no VLAN, 0, or in one."""
    if incoming == outgoing:
        return "", ""
    if outgoing:
        return f"dl_vlan={outgoing}", "pop_vlan,"
    return "", f"push_vlan:0x8100,set_field:{VLAN_PRESENT | incoming}->vlan_vid,"


def _udp_flows(number: int, direction: int) -> Iterator[str]:
    """Go through matches of the generator's flows: they differ in the source port, or beyond those in the source address."""
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
