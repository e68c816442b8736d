"""A load as ports and flows of the Open Traffic Generator model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import snappi

from ringroad_lab import tunnel
from ringroad_lab.flow_set.acl_rules import acl_headers
from ringroad_lab.flow_set.address_flows import DESTINATION, FIRST_SOURCE
from ringroad_lab.flow_set.explosion import ATTACKED, FIRST_ATTACKED, attack_headers
from ringroad_lab.flow_set.interface import FrameHeader, address_text
from ringroad_lab.trial import AddressPlan, FlowSet, FlowShape, Load

# RFC 2544, appendix C.2.2: networks for measurements; RFC 4814, section 4: varied addresses and ports.
PORT_NAMES = ("1", "2")
PORT_ADDRESSES = ("198.18.0.1", "198.19.0.1")
# The source address varies instead if there are more flows than free UDP ports.
MANY_FLOWS_ADDRESSES = ("10.0.0.1", "11.0.0.1")
FIRST_UDP_PORT = 1024
UDP_PORTS = 65536 - FIRST_UDP_PORT
# Locally administered addresses: one station at each end, and the stations of address plans behind each.
STATIONS = (0x02_00_00_00_00_01, 0x02_00_00_00_00_02)
PLANNED_STATIONS = (0x02_01_00_00_00_00, 0x02_02_00_00_00_00)
VLAN_TAG_BYTES = 4
# Source port of the outer UDP header, which a device may read to spread flows over its processors.
TUNNEL_SOURCE_PORT = 49152
LEARNING_FRAMES = 4
LEARNING_FPS = 5_000
ATTACK_FLOW = "attack"
# Number of entries that even a short trial at a low rate reaches in turn.
MOST_IN_TURN = 1024
# The model repeats the configured number of random values; above 65,536 Ringroad draws each value anew.
NEVER_REPEATED = 65_537


@dataclass(frozen=True)
class Direction:
    """The port that sends, and the port that receives."""

    sender: int
    receiver: int

    @property
    def flow(self) -> str:
        """Name of the flow."""
        return f"{PORT_NAMES[self.sender]} to {PORT_NAMES[self.receiver]}"

    @property
    def learning_flow(self) -> str:
        """Name of the flow that shows a learning switch where the receiver is."""
        return f"learning at {PORT_NAMES[self.receiver]}"


def directions(load: Load) -> tuple[Direction, ...]:
    """Return the directions of a load."""
    return (Direction(0, 1), Direction(1, 0)) if load.bidirectional else (Direction(0, 1),)


def extra_bytes(load: Load, sender: int) -> int:
    """Return the number of bytes that tags and tunnels add to the frame size at a sending port."""
    return bool(load.vlans[sender]) * VLAN_TAG_BYTES + bool(load.vnis[sender]) * tunnel.OVERHEAD_BYTES


def ports(locations: tuple[str, str]) -> snappi.Config:
    """Return a configuration of the two ports without flows."""
    config = snappi.Config()
    for name, location in zip(PORT_NAMES, locations, strict=True):
        config.ports.port(name=name, location=location)
    return config


def traffic(locations: tuple[str, str], load: Load, duration_s: float) -> snappi.Config:
    """Return a configuration whose flows are the load and, before it, its learning frames."""
    config = ports(locations)
    for direction in directions(load):
        if load.learning:
            _add_learning(config, direction, load)
        _add_load(config, direction, load, duration_s)
    if load.attack_fps:
        _add_attack(config, load, duration_s)
    return config


def load_flows(load: Load) -> list[str]:
    """Return the names of the flows that make a load."""
    return [*(way.flow for way in directions(load)), *([ATTACK_FLOW] if load.attack_fps else [])]


def _add_load(config: snappi.Config, direction: Direction, load: Load, duration_s: float) -> None:
    flow = _flow(config, direction.flow, direction.sender, direction.receiver)
    extra = extra_bytes(load, direction.sender)
    if len(load.frame.parts) == 1:
        flow.size.fixed = load.frame.parts[0][0] + extra
    else:
        for size, weight in load.frame.parts:
            flow.size.weight_pairs.custom.custom(size=size + extra, weight=weight)
    flow.rate.pps = round(load.rate_fps)
    if load.burst_frames is not None:
        flow.duration.fixed_packets.packets = load.burst_frames
    else:
        flow.duration.fixed_seconds.seconds = duration_s
    flow.metrics.enable = flow.metrics.loss = flow.metrics.latency.enable = True
    flow.metrics.latency.mode = flow.metrics.latency.STORE_FORWARD

    ethernet, ip, udp = _add_headers(flow, load, direction.sender, direction.receiver)
    if load.addresses is not AddressPlan.FIXED:
        field = ethernet.src if load.addresses is AddressPlan.SOURCES else ethernet.dst
        _set_address(field, PLANNED_STATIONS[direction.sender] + load.first_station, load.stations)
    if load.flow_set is not None:
        _add_flow_set(ip, udp, load.flow_set)
    elif load.flows > UDP_PORTS:
        _vary(ip.src, MANY_FLOWS_ADDRESSES[direction.sender], "0.0.0.1", load.flows)
    elif load.flows > 1:
        _vary(udp.src_port, FIRST_UDP_PORT, 1, load.flows)


def _add_flow_set(ip: snappi.FlowIpv4, udp: snappi.FlowUdp, flow_set: FlowSet) -> None:
    """Make frames match the entries of a flow set: in turn, or at random if a trial may be too short for all entries."""
    if flow_set.shape is FlowShape.ACL:
        headers = acl_headers(flow_set.entries, flow_set.seed)
        _set_headers(ip, udp, headers)
        ip.dst.values = [address_text(header.destination) for header in headers]
        return
    ip.dst.value = address_text(DESTINATION)
    if flow_set.entries <= MOST_IN_TURN:
        _vary(ip.src, address_text(FIRST_SOURCE), "0.0.0.1", flow_set.entries)
    else:
        ip.src.random.min, ip.src.random.max = address_text(FIRST_SOURCE), address_text(FIRST_SOURCE + flow_set.entries - 1)
        # Seed 0: different addresses in each trial.
        ip.src.random.seed, ip.src.random.count = 0, NEVER_REPEATED


def _set_headers(ip: snappi.FlowIpv4, transport: snappi.FlowUdp | snappi.FlowTcp, headers: Sequence[FrameHeader]) -> None:
    """Give each frame the next header of a list, except the destination; all fields advance together."""
    ip.src.values = [address_text(header.source) for header in headers]
    transport.src_port.values = [header.source_port for header in headers]
    transport.dst_port.values = [header.destination_port for header in headers]


def _add_attack(config: snappi.Config, load: Load, duration_s: float) -> None:
    """Add frames from port 2 that the white list drops; they have no signature, and are not counted."""
    flow = _flow(config, ATTACK_FLOW, sender=1, receiver=0)
    flow.size.fixed = 64
    flow.rate.pps = round(load.attack_fps)
    flow.duration.fixed_seconds.seconds = duration_s
    ethernet, ip, tcp = flow.packet.ethernet()[-1], flow.packet.ipv4()[-1], flow.packet.tcp()[-1]
    _set_address(ethernet.src, STATIONS[1])
    _set_address(ethernet.dst, STATIONS[0])
    _set_headers(ip, tcp, attack_headers())
    _vary(ip.dst, address_text(FIRST_ATTACKED), "0.0.0.1", ATTACKED)


def _add_learning(config: snappi.Config, direction: Direction, load: Load) -> None:
    """Add frames from the receiving end, so that a switch learns its address: RFC 2544, section 23, second step."""
    flow = _flow(config, direction.learning_flow, direction.receiver, direction.sender)
    flow.size.fixed = 64 + extra_bytes(load, direction.receiver)
    flow.rate.pps = LEARNING_FPS
    _add_headers(flow, load, direction.receiver, direction.sender)
    flow.duration.fixed_packets.packets = LEARNING_FRAMES
    # The flow has a name of its own, so that its frames do not count as foreign frames where they arrive.
    flow.metrics.enable = True


def _add_headers(flow: snappi.Flow, load: Load, sender: int, receiver: int) -> tuple[snappi.FlowEthernet, snappi.FlowIpv4, snappi.FlowUdp]:
    """Add the headers of frames from one port to the other; return the innermost Ethernet, IPv4 and UDP headers."""
    if load.vnis[sender]:
        ethernet, ip, udp = (flow.packet.ethernet()[-1], flow.packet.ipv4()[-1], flow.packet.udp()[-1])
        ethernet.src.value, ethernet.dst.value = tunnel.GENERATOR_STATION, tunnel.DEVICE_STATION
        ip.src.value, ip.dst.value = tunnel.GENERATOR_ADDRESS, tunnel.DEVICE_ADDRESS
        udp.src_port.value, udp.dst_port.value = TUNNEL_SOURCE_PORT, tunnel.UDP_PORT
        flow.packet.vxlan()[-1].vni.value = load.vnis[sender]
    ethernet = flow.packet.ethernet()[-1]
    _set_address(ethernet.src, STATIONS[sender])
    _set_address(ethernet.dst, STATIONS[receiver])
    if load.vlans[sender]:
        flow.packet.vlan()[-1].id.value = load.vlans[sender]
    ip, udp = flow.packet.ipv4()[-1], flow.packet.udp()[-1]
    ip.src.value, ip.dst.value = PORT_ADDRESSES[sender], PORT_ADDRESSES[receiver]
    udp.dst_port.value = udp.src_port.value = FIRST_UDP_PORT
    return ethernet, ip, udp


def _flow(config: snappi.Config, name: str, sender: int, receiver: int) -> snappi.Flow:
    flow = config.flows.flow(name=name)[-1]
    flow.tx_rx.port.tx_name, flow.tx_rx.port.rx_names = PORT_NAMES[sender], [PORT_NAMES[receiver]]
    return flow


def _set_address(field: snappi.PatternFlowEthernetSrc | snappi.PatternFlowEthernetDst, address: int, count: int = 1) -> None:
    text = address.to_bytes(6).hex(":")
    if count == 1:
        field.value = text
    else:
        _vary(field, text, "00:00:00:00:00:01", count)


def _vary(field: object, start: str | int, step: str | int, count: int) -> None:
    increment = field.increment  # type: ignore[attr-defined]
    increment.start, increment.step, increment.count = start, step, count
