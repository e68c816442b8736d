"""The kernel's bridge, in its own network namespace."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ringroad_lab.cable.interface import CABLES, Cable, CableKind
from ringroad_lab.cable.interface_counters import interface_counters, show_links
from ringroad_lab.deadline import wait_until_none
from ringroad_lab.dut.interface import Dut, DutPort, DutSettings, Placement, PortNumber, Rule
from ringroad_lab.errors import DutError, HostError
from ringroad_lab.host.interface import Completed
from ringroad_lab.trial import VlanId

# A bridge with netfilter's hooks drops IPv4 frames with wrong checksums, and costs more. Without IPv6 the kernel sends no own frames.
NAMESPACE_SETTINGS = """
for each in iptables ip6tables arptables; do
    file=/proc/sys/net/bridge/bridge-nf-call-$each
    [ ! -e $file ] || echo 0 >$file
done
for each in all default; do
    file=/proc/sys/net/ipv6/conf/$each/disable_ipv6
    [ ! -e $file ] || echo 1 >$file
done
"""


class LinuxBridgeSettings(DutSettings):
    """Settings of a bridge (ip-link(8))."""

    ageing_s: Annotated[int, Field(ge=0, le=1_000_000)] = 300
    """Lifetime of a learned address, s."""
    access_vlans: dict[PortNumber, VlanId] = {}
    """VLAN of each access port: its frames are untagged there and tagged at the other ports; the bridge adds and removes the tag. Needs
    a kernel with CONFIG_BRIDGE_VLAN_FILTERING."""


class LinuxBridge(Dut):
    """A bridge for each pair of joined ports. It forwards in the sender's context and has no process and no processor of its own."""

    title: ClassVar[str] = "Linux bridge"
    settings_type: ClassVar[type[DutSettings]] = LinuxBridgeSettings
    carries: ClassVar[frozenset[CableKind]] = frozenset({CableKind.VETH, CableKind.TAP, CableKind.NIC})
    received_counters: ClassVar[tuple[str, ...]] = ("rx_frames", "rx_missed")
    # The end of a veth counts there the frames that do not fit into the other end's queue.
    no_room_counters: ClassVar[Mapping[CableKind, str]] = {CableKind.VETH: "tx_dropped"}
    forwards_for_sender: ClassVar[bool] = True
    learns: ClassVar[bool] = True
    settings: LinuxBridgeSettings

    def __init__(self, settings: DutSettings, placement: Placement) -> None:
        """Store validated settings."""
        super().__init__(settings, placement)
        # The folder's name is unique on the host, and so are names with its end.
        self._netns = f"bridge-{placement.host.folder.name[-8:]}"
        self._ports: tuple[DutPort, ...] = ()
        self._bridges: tuple[str, ...] = ()

    def prepare(self) -> None:
        """Check for `ip`."""
        self.host.require("ip", "iproute2")

    def start(self) -> None:
        """Create the namespace."""
        try:
            self.host.run(["ip", "netns", "add", self._netns])
            self.host.run(["ip", "netns", "exec", self._netns, "sh", "-c", NAMESPACE_SETTINGS])
        except HostError as error:
            raise DutError(f"{self.title} did not start: {error}") from error

    def configure(self, ports: Sequence[DutPort], rules: Sequence[Rule]) -> None:
        """Create a bridge for each pair of ports, or for all ports."""
        by_number = {port.number: port for port in ports}
        pairs = sorted({(min(rule.in_port, rule.out_port), max(rule.in_port, rule.out_port)) for rule in rules})
        if len({number for pair in pairs for number in pair}) != 2 * len(pairs):
            raise DutError(f"{self.title} joins ports in pairs: rules {list(rules)} put a port into several pairs")
        self._ports = tuple(ports)
        groups: Sequence[tuple[int, ...]] = pairs or [tuple(by_number)]
        ageing = str(self.settings.ageing_s * 100)
        try:
            for number, group in enumerate(groups):
                bridge = f"br{number}"
                self._ip("link", "add", bridge, "type", "bridge", "stp_state", "0", "mcast_snooping", "0", "ageing_time", ageing)
                self._bridges = (*self._bridges, bridge)
                for port in (by_number[end] for end in group):
                    interface = port.cable.dut_end
                    self.host.run(["ip", "link", "set", "dev", interface, "netns", self._netns])
                    self._ip("link", "set", "dev", interface, "master", bridge)
                    self._ip("link", "set", "dev", interface, "up")
                self._set_vlans(bridge, [by_number[end] for end in group])
                self._ip("link", "set", "dev", bridge, "up")
        except HostError as error:
            raise DutError(f"{self.title} could not add its ports: {error}") from error

    def _set_vlans(self, bridge: str, members: Sequence[DutPort]) -> None:
        vlans = {vlan for port in members if (vlan := self.settings.access_vlans.get(port.number))}
        if not vlans:
            return
        try:
            self._ip("link", "set", "dev", bridge, "type", "bridge", "vlan_filtering", "1", "vlan_default_pvid", "0")
        except HostError as error:
            reason = "this kernel's bridges have no VLAN filtering (CONFIG_BRIDGE_VLAN_FILTERING)"
            raise DutError(f"{self.title}: {reason}: leave out access_vlans, or use another device, such as ovs: {error}") from error
        for port in members:
            own = self.settings.access_vlans.get(port.number)
            for vlan in {own} if own else vlans:
                untagged = ["pvid", "untagged"] if own else []
                self.host.run(["bridge", "-n", self._netns, "vlan", "add", "dev", port.cable.dut_end, "vid", str(vlan), *untagged])

    def environment(self) -> dict[str, str]:
        """Return the name of its network namespace, for `ip -n` and `bridge -n`."""
        return {"BRIDGE_NETNS": self._netns}

    def plugged_in(self, cable: Cable) -> Cable:
        """Return a cable whose end is in the bridge's namespace."""
        return replace(cable, dut_netns=self._netns)

    def await_ready(self, timeout_s: float) -> None:
        """Wait until every port forwards."""

        def down() -> list[str]:
            links = self._links()
            return [
                f"{port.number} ({port.cable.dut_end})"
                for port in self._ports
                if (links.get(port.cable.dut_end, {}).get("linkinfo", {}).get("info_slave_data", {}).get("state")) != "forwarding"
            ]

        if left := wait_until_none(down, timeout_s):
            raise DutError(f"{self.title}: port {', '.join(left)} does not forward after {timeout_s:g} s: is its other end up?")

    def check(self) -> None:
        """Check that the bridges and their ports exist."""
        links = self._links()
        gone = [name for name in (*self._bridges, *(port.cable.dut_end for port in self._ports)) if name not in links]
        if gone:
            raise DutError(f"{self.title}: {', '.join(gone)} is gone: another program removed it")

    def collect(self) -> dict[str, int]:
        """Return the counters of the ports' interfaces, and the frames that their queueing disciplines dropped."""
        links, dropped = self._links(), self._dropped_by_qdiscs()
        found: dict[str, int] = {}
        for port in self._ports:
            counters = interface_counters(links.get(port.cable.dut_end, {}))
            if (frames := dropped.get(port.cable.dut_end)) is not None:
                counters["qdisc_dropped"] = frames
            found |= {f"{port.number}.{name}": value for name, value in counters.items()}
        return found

    def _dropped_by_qdiscs(self) -> dict[str, int]:
        """Frames that queueing disciplines and filters dropped, by interface (tc(8)); empty if `tc` is not available."""
        completed = self.host.run(["tc", "-n", self._netns, "-s", "-j", "qdisc", "show"], check=False)
        try:
            qdiscs = json.loads(completed.stdout or "[]")
        except ValueError:
            return {}
        dropped: dict[str, int] = {}
        for qdisc in qdiscs:
            dropped[qdisc["dev"]] = dropped.get(qdisc["dev"], 0) + int(qdisc.get("drops", 0))
        return dropped

    def versions(self) -> dict[str, str]:
        """Return the version of the kernel."""
        return {"Linux": self.host.read_text(PurePosixPath("/proc/sys/kernel/osrelease")).strip()}

    def port_modes(self) -> dict[str, str]:
        """Return the kind of interface of each port."""
        links = self._links()
        modes = {}
        for port in self._ports:
            kind = links.get(port.cable.dut_end, {}).get("linkinfo", {}).get("info_kind", "network card")
            modes[str(port.number)] = f"{kind} {port.cable.dut_end}, forwarded in the context of the sender"
        return modes

    def stop(self) -> None:
        """Return the site's interfaces, and remove the namespace with the bridges and the interfaces that the lab created."""
        # The kernel returns only cards by itself, and only to the machine's first namespace; it deletes others, such as VLANs and veth.
        # $$ is a process in the host's own namespace.
        give_back = 'netns=$1; shift; for interface; do ip -n "$netns" link set "$interface" netns $$; done; ip netns delete "$netns"'
        interfaces = [port.cable.dut_end for port in self._ports if CABLES[port.cable.kind].joins_cards]
        self.host.run(["sh", "-c", give_back, "sh", self._netns, *interfaces], check=False)

    def _ip(self, *arguments: str) -> Completed:
        return self.host.run(["ip", "-n", self._netns, *arguments])

    def _links(self) -> dict[str, dict[str, Any]]:
        try:
            return show_links(self.host, self._netns)
        except HostError as error:
            raise DutError(f"{self.title}: cannot query its namespace {self._netns}: {error}") from error
