"""Ringroad's switch: a daemon with its own socket, and its ports."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ringroad_lab.build.opened import Programs
from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.deadline import wait_until_none
from ringroad_lab.dut.interface import Dut, DutPort, DutSettings, Placement, Rule
from ringroad_lab.dut.open_flow import OpenFlowSettings, flow_set_flows, flows_file_version, loading_timeout_s, rule_flows
from ringroad_lab.errors import DutError, HostError
from ringroad_lab.host.interface import Completed, Process
from ringroad_lab.ringroad_program import require_ringroad
from ringroad_lab.trial import FlowSet

START_TIMEOUT_S = 15.0
RULES_SWITCH = "vale0"


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

    @model_validator(mode="after")
    def _needs_rules(self) -> Self:
        for name in ("flows_file", "rule_set", "access_vlans"):
            if getattr(self, name) and self.forwarding != "rules":
                raise ValueError(f'{name} needs forwarding = "rules"')
        return self


class RingroadSwitch(Dut):
    """A learning switch for each pair of joined ports, or a switch with OpenFlow rules."""

    title: ClassVar[str] = "Ringroad switch"
    settings_type: ClassVar[type[DutSettings]] = RingroadSettings
    carries: ClassVar[frozenset[CableKind]] = frozenset({CableKind.VETH, CableKind.VHOST_USER, CableKind.MEMIF, CableKind.NIC})
    build_programs: ClassVar[Programs] = {"ringroadd": (), "ringroad": ()}
    no_room_counters: ClassVar[Mapping[CableKind, str]] = dict.fromkeys((CableKind.VHOST_USER, CableKind.MEMIF), "dropped_no_space")
    settings: RingroadSettings

    def __init__(self, settings: DutSettings, placement: Placement) -> None:
        """Store validated settings."""
        super().__init__(settings, placement)
        self._socket = placement.host.folder / "ringroadd.sock"
        self._daemon: Process | None = None
        self._ports: dict[str, DutPort] = {}
        """Ports by the daemon's names."""
        self._rules: tuple[Rule, ...] = ()

    def prepare(self) -> None:
        """Check for the daemon and its client."""
        self._client = require_ringroad(self.host, "ringroad")
        self._program = require_ringroad(self.host, "ringroadd")

    def start(self) -> None:
        """Start the daemon."""
        cpus = sorted(self.placement.cpus)
        config = self.host.folder / "ringroadd.toml"
        lines = ["[workers]", f"spin_us = {self.settings.spin_us}", f"busy = {json.dumps(self.settings.busy)}"]
        if cpus:
            lines += [f"count = {min(len(cpus), 16)}", f"cpus = {cpus[:16]}"]
        try:
            self.host.write_text(config, "\n".join([*lines, ""]))
            argv = [self._program, "--socket", str(self._socket), "--config", str(config)]
            self._daemon = self.launch("ringroadd", argv)
        except HostError as error:
            raise DutError(f"{self.title} did not start: {error}") from error
        if why := self._daemon.why_silent("is ready", START_TIMEOUT_S):
            raise DutError(f"{self.title} did not start: its daemon {why}")

    def configure(self, ports: Sequence[DutPort], rules: Sequence[Rule]) -> None:
        """Attach the ports to switches, and install flow tables unless the switches learn."""
        self._rules = tuple(rules)
        switches = self._lay_out(ports, rules)
        for switch, members in switches.items():
            for port in members:
                name = f"{switch}:{port.number}"
                options = ["--queues", str(port.cable.queues), "--slots", str(self.settings.slots)]
                try:
                    self._call_client("attach", name, "--driver", _driver(port.cable), *options)
                except HostError as error:
                    raise DutError(f"{self.title} could not attach port {port.number}: {error}") from error
                self._ports[name] = port
        if self.settings.forwarding == "learn":
            return
        if self.settings.forwarding == "rules":
            self._check_numbers()
        try:
            for switch in switches:
                self._call_client("switch", switch, "--openflow")
                self._call_client("flows", "replace", switch, "-", stdin=self._flows())
        except HostError as error:
            raise DutError(f"{self.title} rejected its flows: {error}") from error

    def _check_numbers(self) -> None:
        """Check that port numbers in the rules match the switch: a port's number is its index on the switch, from 1."""
        found = {port["name"]: port.get("index") for port in self._status().get("ports", [])}
        if wrong := [f"{name} has index {found.get(name)}" for name, port in self._ports.items() if found.get(name) != port.number - 1]:
            raise DutError(f"{self.title} numbered its ports differently from the rules: {', '.join(wrong)}")

    def _lay_out(self, ports: Sequence[DutPort], rules: Sequence[Rule]) -> dict[str, list[DutPort]]:
        """Return the member ports of each switch, by its name; with `rules` in the order of their numbers, as the switch counts from 1."""
        if self.settings.forwarding == "rules":
            return {RULES_SWITCH: sorted(ports, key=lambda port: port.number)}
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
        self._check_daemon()
        try:
            # A new table, because listing a large former table may take long.
            self._call_client("switch", RULES_SWITCH, "--learn")
            self._call_client("switch", RULES_SWITCH, "--openflow")
            began_s = time.monotonic()
            self._call_client("flows", "add", RULES_SWITCH, "--file", "-", stdin=flows, timeout_s=loading_timeout_s(flows))
            return time.monotonic() - began_s
        except HostError as error:
            raise DutError(f"{self.title} rejected its flow entries: {error}") from error

    def await_ready(self, timeout_s: float) -> None:
        """Wait until every peer is connected and every interface is up."""

        def down() -> list[str]:
            found = {port["name"]: port for port in self._status().get("ports", [])}
            return [f"{port.number} ({port.cable.dut_end})" for name, port in self._ports.items() if not _is_up(found.get(name, {}))]

        if left := wait_until_none(down, timeout_s, 0.05):
            self.check()
            raise DutError(f"{self.title}: port {', '.join(left)} is not up after {timeout_s:g} s: is its other end connected?")

    def check(self) -> None:
        """Check that the daemon is running, and that no port failed."""
        found = {port["name"]: port for port in self._status().get("ports", [])}
        for name, port in self._ports.items():
            if name not in found:
                raise DutError(f"{self.title}: port {port.number} is gone: {self._daemon.last_words() if self._daemon else ''}")
            if found[name].get("error"):
                raise DutError(f"{self.title}: port {port.number} failed: {found[name]['error']}")

    def collect(self) -> dict[str, int]:
        """Return the ports' counters: received frames, frames delivered to them, and drops by cause."""
        collected = {}
        for status in self._status().get("ports", []):
            if (port := self._ports.get(status["name"])) is None:
                continue
            counters = status.get("counters", {})
            collected[f"{port.number}.rx_frames"] = int(counters.get("received_frames", 0))
            collected[f"{port.number}.tx_frames"] = int(counters.get("delivered_frames", 0))
            collected[f"{port.number}.rx_bytes"] = int(counters.get("received_bytes", 0))
            collected[f"{port.number}.tx_bytes"] = int(counters.get("delivered_bytes", 0))
            collected[f"{port.number}.violations"] = int(counters.get("violations", 0))
            # Causes that never happened may be left out.
            for cause, frames in ({"no_space": 0} | counters.get("drops", {})).items():
                collected[f"{port.number}.dropped_{cause}"] = int(frames)
        return collected

    def busy_s(self) -> float | None:
        """Return the total time of the workers' turns that moved frames."""
        return sum(float(worker["busy_ns"]) for worker in self._status().get("workers", [])) / 1e9

    def versions(self) -> dict[str, str]:
        """Return the daemon's version."""
        versions = {"Ringroad": self.host.run([self._program, "--version"]).stdout.strip().rpartition(" ")[2]}
        return versions | flows_file_version(self.title, self.settings)

    def port_modes(self) -> dict[str, str]:
        """Return kind, mode and negotiated features of each port, as the daemon reports them."""
        modes = {}
        for status in self._status().get("ports", []):
            if port := self._ports.get(status["name"]):
                peer = status.get("peer") or {}
                modes[str(port.number)] = ", ".join(filter(None, (status.get("kind"), status.get("mode"), peer.get("agreed"))))
        return modes

    def environment(self) -> dict[str, str]:
        """Return the socket of the daemon for `ringroad`, and the name of its first switch."""
        return {"RINGROAD_SOCKET": str(self._socket), "RINGROAD_SWITCH": RULES_SWITCH}

    def _check_daemon(self) -> None:
        # The client would start another daemon if this one has ended.
        if why := self._daemon.death() if self._daemon else "was not started":
            raise DutError(f"{self.title}: its daemon {why}")

    def _call_client(self, *arguments: str, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        return self.host.run([self._client, "--socket", str(self._socket), "--json", *arguments], stdin=stdin, timeout_s=timeout_s)

    def _status(self) -> dict[str, Any]:
        self._check_daemon()
        try:
            status = json.loads(self._call_client("status").stdout)
        except (HostError, json.JSONDecodeError) as error:
            raise DutError(f"{self.title}: its daemon does not answer: {error}") from error
        if not isinstance(status, dict):
            raise DutError(f"{self.title}: invalid reply from its daemon: {str(status)[:200]}")
        return status


def _driver(cable: Cable) -> str:
    """Return the driver location of the port at the device's end of a cable (docs/port-names.md)."""
    role = "server" if cable.is_dut_server else "client"
    match cable.kind:
        case CableKind.VETH:
            name = f"xdp:{cable.dut_end}@queues={cable.queues}"
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
