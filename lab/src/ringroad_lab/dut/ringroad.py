"""Ringroad's switch: a daemon with its own socket, and its ports."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ringroad_lab.build.opened import Programs
from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.deadline import wait_until_none
from ringroad_lab.dut.interface import Dut, DutPort, DutSettings, Placement, Rule
from ringroad_lab.dut.open_flow import OpenFlowSettings, flow_set_flows, flows_file_version, loading_timeout_s, rule_flows
from ringroad_lab.dut.ringroad_daemon import RingroadDaemon
from ringroad_lab.errors import DutError, HostError
from ringroad_lab.trial import FlowSet

RULES_SWITCH = "vale0"
# Schemes of ports' names (docs/port-names.md).
VETH_SCHEMES = {"xdp": "xdp", "kernel": "veth"}


class RingroadSettings(OpenFlowSettings):
    """Settings of the daemon (docs/daemon.md) and of its flow tables."""

    forwarding: Literal["learn", "rules", "normal"] = "learn"
    """`learn`: a learning switch for each pair of ports. `rules`: one switch with flow tables, in_port to output. `normal`: a switch with
    flow tables for each pair, action NORMAL."""

    busy: bool = False
    """Whether its workers never sleep."""
    spin_us: Annotated[int, Field(ge=0, le=1_000_000)] = 50
    """Time that an idle worker polls before it sleeps, µs."""
    slots: Annotated[int, Field(ge=4, le=4096)] = 1024
    """Slots per ring."""
    veth_mode: Literal["xdp", "kernel"] = "xdp"
    """Ports on veth pairs. `xdp`: over AF_XDP, by the workers. `kernel`: the ports of containers, between which frames pass within the
    kernel."""
    shared_buffers: bool = False
    """Whether the two interfaces of a switch share their buffers (`@share=`), so that frames between them are not copied."""

    @model_validator(mode="after")
    def _fits_forwarding(self) -> Self:
        for name in ("flows_file", "rule_set", "access_vlans"):
            if getattr(self, name) and self.forwarding != "rules":
                raise ValueError(f'{name} needs forwarding = "rules"')
        # A switch with flow tables passes all frames through its workers.
        if self.veth_mode == "kernel" and self.forwarding != "learn":
            raise ValueError('veth_mode = "kernel" needs forwarding = "learn"')
        if self.shared_buffers and (self.veth_mode == "kernel" or self.forwarding == "rules"):
            raise ValueError(
                'shared_buffers needs veth_mode = "xdp", and forwarding = "learn" or "normal": a switch for each pair of ports'
            )
        return self

    def why_stations_only(self, kind: CableKind) -> str:
        """See [`DutSettings.why_stations_only`]."""
        if kind is CableKind.VETH and self.veth_mode == "kernel":
            return "frames that pass within the kernel do not reach the generator's AF_XDP sockets"
        return ""


class RingroadSwitch(Dut):
    """A learning switch for each pair of joined ports, or a switch with OpenFlow rules."""

    title: ClassVar[str] = "Ringroad switch"
    settings_type: ClassVar[type[DutSettings]] = RingroadSettings
    carries: ClassVar[frozenset[CableKind]] = frozenset(
        {CableKind.VETH, CableKind.VHOST_USER, CableKind.MEMIF, CableKind.NIC, CableKind.NETMAP}
    )
    learns: ClassVar[bool] = True
    build_programs: ClassVar[Programs] = {"ringroadd": (), "ringroad": ()}
    no_room_counters: ClassVar[Mapping[CableKind, str]] = dict.fromkeys(
        (CableKind.VHOST_USER, CableKind.MEMIF, CableKind.NETMAP), "dropped_no_space"
    )
    settings: RingroadSettings

    def __init__(self, settings: DutSettings, placement: Placement) -> None:
        """Store validated settings."""
        super().__init__(settings, placement)
        self._daemon = RingroadDaemon(self)
        self._ports: dict[str, DutPort] = {}
        """Ports by the daemon's names."""
        self._rules: tuple[Rule, ...] = ()

    def prepare(self) -> None:
        """Check for the daemon and its client."""
        self._daemon.prepare()

    def start(self) -> None:
        """Start the daemon."""
        self._daemon.start(spin_us=self.settings.spin_us, busy=self.settings.busy)

    def configure(self, ports: Sequence[DutPort], rules: Sequence[Rule]) -> None:
        """Attach the ports to switches, and install flow tables unless the switches learn."""
        self._rules = tuple(rules)
        switches = self._lay_out(ports, rules)
        for switch, members in switches.items():
            for port in members:
                name = f"{switch}:{port.number}"
                self._ports[name] = port
                if port.cable.kind is CableKind.NETMAP:
                    if self.settings.forwarding != "learn":
                        raise DutError(f'{self.title}: netmap programs open their ports later: they need forwarding = "learn"')
                    continue
                share = f"@share={switch}:{members[0].number}" if self.settings.shared_buffers and port is not members[0] else ""
                options = ["--queues", str(port.cable.queues), "--slots", str(self.settings.slots)]
                try:
                    self._daemon.call("attach", f"{name}{share}", "--driver", self._driver(port.cable), *options)
                except HostError as error:
                    raise DutError(f"{self.title} could not attach port {port.number}: {error}") from error
        if self.settings.forwarding == "learn":
            return
        if self.settings.forwarding == "rules":
            self._check_numbers()
        try:
            for switch in switches:
                self._daemon.call("switch", switch, "--openflow")
                self._daemon.call("flows", "replace", switch, "-", stdin=self._flows())
        except HostError as error:
            raise DutError(f"{self.title} rejected its flows: {error}") from error

    def _check_numbers(self) -> None:
        """Check that port numbers in the rules match the switch: a port's number is its index on the switch, from 1."""
        found = {name: port.get("index") for name, port in self._daemon.ports().items()}
        if wrong := [f"{name} has index {found.get(name)}" for name, port in self._ports.items() if found.get(name) != port.number - 1]:
            raise DutError(f"{self.title} numbered its ports differently from the rules: {', '.join(wrong)}")

    def _lay_out(self, ports: Sequence[DutPort], rules: Sequence[Rule]) -> dict[str, list[DutPort]]:
        """Return the member ports of each switch, by its name; with `rules` in the order of their numbers, as the switch counts from 1."""
        if self.settings.forwarding == "rules":
            if not rules:
                raise DutError(f'{self.title}: a learning switch of several ports needs forwarding = "learn" or "normal"')
            return {RULES_SWITCH: sorted(ports, key=lambda port: port.number)}
        if not rules:
            return {RULES_SWITCH: list(ports)}
        by_number = {port.number: port for port in ports}
        pairs = sorted({(min(rule.in_port, rule.out_port), max(rule.in_port, rule.out_port)) for rule in rules})
        if len({number for pair in pairs for number in pair}) != 2 * len(pairs):
            raise DutError(f"{self.title} joins ports in pairs: rules {list(rules)} put a port into several pairs")
        return {f"vale{switch}": [by_number[number] for number in pair] for switch, pair in enumerate(pairs)}

    def _flows(self) -> str:
        return "actions=NORMAL\n" if self.settings.forwarding == "normal" else rule_flows(self.title, self.settings, self._rules)

    def install_flows(self, flow_set: FlowSet | None) -> float:
        """See [`Dut.install_flows`]: runs `ringroad flows add`."""
        if self.settings.forwarding != "rules":
            raise DutError(f'{self.title} accepts flow entries only with forwarding = "rules"')
        flows = self._flows() if flow_set is None else flow_set_flows(self._rules, flow_set)
        self._daemon.check()
        try:
            # A new table, because listing a large former table may take long.
            self._daemon.call("switch", RULES_SWITCH, "--learn")
            self._daemon.call("switch", RULES_SWITCH, "--openflow")
            began_s = time.monotonic()
            self._daemon.call("flows", "add", RULES_SWITCH, "--file", "-", stdin=flows, timeout_s=loading_timeout_s(flows))
            return time.monotonic() - began_s
        except HostError as error:
            raise DutError(f"{self.title} rejected its flow entries: {error}") from error

    def plugged_in(self, cable: Cable) -> Cable:
        """Return a cable with its ends: a netmap program opens a port of the switch at the daemon's socket."""
        if cable.kind is not CableKind.NETMAP:
            return cable
        (name,) = (name for name, port in self._ports.items() if port.cable == cable)
        return replace(cable, dut_end=str(self._daemon.socket), far_end=name)

    def await_ready(self, timeout_s: float) -> None:
        """Wait until every peer is connected and every interface is up."""

        def down() -> list[str]:
            found = self._daemon.ports()
            return [f"{port.number} ({port.cable.dut_end})" for name, port in self._ports.items() if not _is_up(found.get(name, {}))]

        if left := wait_until_none(down, timeout_s, 0.05):
            self.check()
            raise DutError(f"{self.title}: port {', '.join(left)} is not up after {timeout_s:g} s: is its other end connected?")

    def check(self) -> None:
        """Check that the daemon is running, and that no port failed."""
        found = self._daemon.ports()
        for name, port in self._ports.items():
            if name not in found:
                if port.cable.kind is CableKind.NETMAP:
                    # Its program has not opened it yet, or has ended: the check of the program reports that.
                    continue
                raise DutError(f"{self.title}: port {port.number} is gone: {self._daemon.last_words()}")
            if found[name].get("error"):
                raise DutError(f"{self.title}: port {port.number} failed: {found[name]['error']}")

    def collect(self) -> dict[str, int]:
        """Return the ports' counters: received frames, frames delivered to them, drops by cause; and the frames of the workers.

        Frames that passed within the kernel are the ports', not the workers'.
        """
        return self._daemon.collect(self._ports) | {"worker_frames": self._daemon.worker_frames()}

    def busy_s(self) -> float | None:
        """Return the total time of the workers' turns that moved frames."""
        return self._daemon.busy_s()

    def versions(self) -> dict[str, str]:
        """Return the daemon's version."""
        return {"Ringroad": self._daemon.version()} | flows_file_version(self.title, self.settings)

    def port_modes(self) -> dict[str, str]:
        """Return kind, mode and negotiated features of each port, as the daemon reports them."""
        return self._daemon.modes(self._ports)

    def environment(self) -> dict[str, str]:
        """Return the socket of the daemon for `ringroad`, and the name of its first switch."""
        return {"RINGROAD_SOCKET": str(self._daemon.socket), "RINGROAD_SWITCH": RULES_SWITCH}

    def _driver(self, cable: Cable) -> str:
        """Return the driver location of the port at the device's end of a cable (docs/port-names.md)."""
        role = "server" if cable.is_dut_server else "client"
        match cable.kind:
            case CableKind.VETH:
                name = f"{VETH_SCHEMES[self.settings.veth_mode]}:{cable.dut_end}@queues={cable.queues}"
            case CableKind.NIC:
                name = f"netmap:{cable.dut_end}@queues={cable.queues}"
            case CableKind.VHOST_USER:
                return f"vhost-user:{cable.dut_end}@role={role},queues={cable.queues}"
            case CableKind.MEMIF:
                return f"memif:{cable.dut_end}@role={role},queues={cable.queues}"
            case CableKind.TAP:
                raise DutError(f"Ringroad switch: cable {cable.name}: there is no driver for an existing tap")
        return f"{name},netns={cable.dut_netns}" if cable.dut_netns else name


def _is_up(port: dict[str, Any]) -> bool:
    peer, link = port.get("peer"), port.get("link")
    if peer is not None:
        return bool(peer.get("connected")) and bool(peer.get("active_queues"))
    if link is not None:
        return bool(link.get("up")) and bool(link.get("running"))
    return bool(port)
