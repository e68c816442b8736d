"""Open vSwitch in user space, with and without DPDK.

The lab starts the daemons directly in a folder of the run: without systemd, without the machine's own database, and nothing remains
afterwards. The kernel datapath is not used; `ovs` is the userspace datapath ("netdev") of the ordinary build, without DPDK.
"""

from __future__ import annotations

import json
import re
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ringroad_lab import tunnel
from ringroad_lab.build.opened import Programs
from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.dut import open_vswitch_counters as counters
from ringroad_lab.dut.dpdk_veth import DpdkVeth, VethMode
from ringroad_lab.dut.interface import Dut, DutPort, DutSettings, Placement, PortNumber, Rule
from ringroad_lab.dut.open_flow import LOADING_S, OpenFlowSettings, flow_set_flows, flows_file_version, loading_timeout_s, rule_flows
from ringroad_lab.errors import DutError, HostError
from ringroad_lab.facts.numa_nodes import NumaNodes
from ringroad_lab.host.interface import Completed, Process
from ringroad_lab.trial import FlowSet, Vni

SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
DPDK_DAEMON = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"
TOOLS = ("ovs-vsctl", "ovsdb-server", "ovsdb-tool", "ovs-ofctl", "ovs-appctl")
# The tap that the userspace datapath creates for itself.
DATAPATH_TAP = "ovs-netdev"
# DPDK's memory: enough for six ports of four queues.
MEMORY_MIB = 1024
LOG_END_LINES = 12
CALIBRATION_S = 0.1


class OpenVSwitchSettings(OpenFlowSettings):
    """Settings of both builds."""

    forwarding: Literal["rules", "normal"] = "rules"
    """`rules`: OpenFlow, in_port to output. `normal`: a learning bridge for each pair of ports, action NORMAL."""
    vxlans: dict[PortNumber, Vni] = {}
    """VXLAN network of each port whose frames are tunneled; the switch adds and removes the encapsulation."""
    other_config: dict[str, str] = {}
    """Additional entries of Open_vSwitch's `other_config` (ovs-vswitchd.conf.db(5))."""


class OvsSettings(OpenVSwitchSettings):
    """Settings of the build without DPDK."""

    veth_mode: Literal["system", "afxdp"] = "system"
    """`system`: packet sockets, in the main thread. `afxdp`: AF_XDP, in a polling thread."""
    xdp_mode: Literal["best-effort", "native", "native-with-zerocopy", "generic"] = "best-effort"
    """Options of `afxdp`."""


class OvsDpdkSettings(OpenVSwitchSettings):
    """Settings of the build with DPDK."""

    veth_mode: VethMode = VethMode.AF_XDP
    """Driver of its ports on veth pairs."""
    shared_buffers: bool = False
    """Whether all ports of an MTU share buffers, the default of Open vSwitch. The first port then takes most of the memory, and the rest
    may be too little for ports of another kind."""
    emc_insert_inv_prob: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = None
    """One in this many frames creates an entry in the exact match cache; 0: none; None: the default of Open vSwitch."""


class OpenVSwitch(Dut):
    """Common base of both builds."""

    serves_sockets: ClassVar[bool] = False
    start_s: ClassVar[float] = 5.0
    refusals: ClassVar[Mapping[CableKind, str]]
    """Why it has no ports for these cables."""
    settings: OpenVSwitchSettings

    def __init__(self, settings: DutSettings, placement: Placement) -> None:
        """Store validated settings of type `settings_type`."""
        super().__init__(settings, placement)
        if not placement.cpus:
            raise DutError(f"{self.title}: no processor is reserved for it")
        self._folder: PurePosixPath = placement.host.folder / "open-vswitch"
        self._ports: tuple[DutPort, ...] = ()
        self._rules: tuple[Rule, ...] = ()
        self._bridges: tuple[str, ...] = ()
        self._cycles_per_s: float | None = None
        """Rate of a polling thread, once measured."""
        # A tap that may be the machine's own is kept until `start` has checked.
        self._had_datapath_tap = True
        self._database: Process | None = None
        self._switch: Process | None = None

    @property
    @abstractmethod
    def _daemon(self) -> tuple[str, str]:
        """The switch daemon, and its Debian package."""

    @abstractmethod
    def _start_settings(self) -> dict[str, str]:
        """Required contents of `other_config` before the daemon starts."""

    @abstractmethod
    def _interface(self, port: DutPort) -> tuple[str, dict[str, str]]:
        """Name of the interface for a port, and the columns of its row.

        Raises:
            DutError: the build has no interface for such a cable.
        """

    @property
    def _pmd_mask(self) -> str:
        return hex(sum(1 << cpu for cpu in self.placement.cpus))

    # Life

    def prepare(self) -> None:
        """Check for the daemons and their tools."""
        for program in TOOLS:
            self.host.require(program, "openvswitch-switch" if program == "ovs-vsctl" else "openvswitch-common")
        self._program = self.host.require(*self._daemon)

    def start(self) -> None:
        """Start the database and the switch."""
        if self._database is not None:
            raise DutError(f"{self.title} was started already")
        try:
            self.host.run(["mkdir", "-p", str(self._folder)])
            database = str(self._folder / "conf.db")
            self.host.run(["ovsdb-tool", "create", database, self.host.locate(SCHEMA)])
            self._had_datapath_tap = self._has_interface(DATAPATH_TAP)
            # The database needs no processors of its own: it sleeps while traffic runs.
            self._database = self._start_daemon(
                "ovsdb-server",
                ["ovsdb-server", database, f"--remote=punix:{self._folder / 'db.sock'}", f"--unixctl={self._folder / 'ovsdb.ctl'}"],
            )
            columns = [f"other_config:{name}={_quoted(value)}" for name, value in self._start_settings().items()]
            # --retry: the daemon may not be listening yet.
            self._vsctl("--retry", "--no-wait", "init", "--", "set", "Open_vSwitch", ".", *columns)
            self._switch = self._start_daemon(
                "ovs-vswitchd", [*self._switch_command(), f"unix:{self._folder / 'db.sock'}", f"--unixctl={self._folder / 'vswitchd.ctl'}"]
            )
            # The command returns when the daemon has read the setting: it has no --no-wait.
            self._vsctl("set", "Open_vSwitch", ".", "external_ids:lab=started", timeout_s=30)
        except HostError as error:
            raise self._failure("did not start", error) from error

    def _switch_command(self) -> list[str]:
        return [self._program]

    def _start_daemon(self, name: str, argv: Sequence[str]) -> Process:
        return self.host.start(name, [*argv, "-vsyslog:off", "-vconsole:info"], env=self._env, cpus=self.placement.cpus)

    @property
    def _env(self) -> dict[str, str]:
        names = ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR")
        # RUNTIME_DIRECTORY is DPDK's, for its sockets.
        return {name: str(self._folder) for name in (*names, "RUNTIME_DIRECTORY")}

    def configure(self, ports: Sequence[DutPort], rules: Sequence[Rule]) -> None:
        """Create bridges and ports, and set the flows."""
        self._ports, self._rules = tuple(ports), tuple(rules)
        bridges = self._lay_out(rules)
        # The counters of the tunneled frames of a tunnel port come last and override the others.
        self._bridges = (*bridges, *map(_under, self._tunnel_ports))
        commands: list[str] = []
        for bridge, members in bridges.items():
            commands += ["--", "add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev"]
            for port in members:
                if port in self._tunnel_ports:
                    commands += self._add_tunnel_commands(bridge, port)
                    continue
                name, columns = self._interface(port)
                commands += ["--", "add-port", bridge, name, "--", "set", "interface", name, f"ofport_request={port.number}"]
                commands += [f"{column}={_quoted(value)}" for column, value in columns.items()]
                if self.settings.forwarding == "normal" and (vlan := self.settings.access_vlans.get(port.number)):
                    commands += ["--", "set", "port", name, f"tag={vlan}"]
        try:
            self._vsctl(*commands[1:])
            self._check_ports()
            for bridge in bridges:
                self._ofctl("replace-flows", bridge, "-", stdin=self._flows(rules))
            for port in self._tunnel_ports:
                self._set_tunnel_addresses(port)
        except HostError as error:
            raise self._failure("rejected its configuration", error) from error

    def install_flows(self, flow_set: FlowSet | None) -> float:
        """See [`Dut.install_flows`]: runs `ovs-ofctl add-flows`, and waits until the datapath's cache has none of the former flows."""
        if self.settings.forwarding != "rules":
            raise DutError(f'{self.title} accepts flow entries only with forwarding = "rules"')
        flows = self._flows(self._rules) if flow_set is None else flow_set_flows(self._rules, flow_set)
        try:
            self._ofctl("del-flows", self._bridges[0], timeout_s=LOADING_S)
            began_s = time.monotonic()
            self._ofctl("add-flows", self._bridges[0], "-", stdin=flows, timeout_s=loading_timeout_s(flows))
            elapsed_s = time.monotonic() - began_s
            self._appctl("vswitchd.ctl", "revalidator/wait")
        except HostError as error:
            raise self._failure("rejected its flow entries", error) from error
        return elapsed_s

    @property
    def _tunnel_ports(self) -> list[DutPort]:
        return [port for port in self._ports if port.number in self.settings.vxlans]

    def _add_tunnel_commands(self, bridge: str, port: DutPort) -> list[str]:
        """Add a tunnel end to a bridge, and the port itself to a separate bridge, which has the tunnel end's address."""
        name, columns = self._interface(port)
        under, end = _under(port), _tunnel(port)
        options = {"type": "vxlan", "options:remote_ip": tunnel.GENERATOR_ADDRESS, "options:key": str(self.settings.vxlans[port.number])}
        commands = ["--", "add-br", under, "--", "set", "bridge", under, "datapath_type=netdev"]
        commands += [f"other-config:hwaddr={_quoted(tunnel.DEVICE_STATION)}"]
        for on, interface, values in ((under, name, columns), (bridge, end, options)):
            commands += ["--", "add-port", on, interface, "--", "set", "interface", interface, f"ofport_request={port.number}"]
            commands += [f"{column}={_quoted(value)}" for column, value in values.items()]
        return commands

    def _set_tunnel_addresses(self, port: DutPort) -> None:
        under = _under(port)
        self.host.run(["ip", "address", "add", f"{tunnel.DEVICE_ADDRESS}/{tunnel.NETWORK_BITS}", "dev", under])
        self.host.run(["ip", "link", "set", "dev", under, "up"])
        self._appctl("vswitchd.ctl", "tnl/neigh/set", under, tunnel.GENERATOR_ADDRESS, tunnel.GENERATOR_STATION)

    def _lay_out(self, rules: Sequence[Rule]) -> dict[str, list[DutPort]]:
        """Return the member ports of each bridge, by the bridge's name."""
        # The name of a cable is unique in the run, and so are names made from it.
        if self.settings.forwarding == "rules":
            return {f"br-{self._ports[0].cable.name}": list(self._ports)}
        by_number = {port.number: port for port in self._ports}
        pairs = sorted({(min(rule.in_port, rule.out_port), max(rule.in_port, rule.out_port)) for rule in rules})
        return {f"br-{by_number[left].cable.name}": [by_number[left], by_number[right]] for left, right in pairs}

    def _flows(self, rules: Sequence[Rule]) -> str:
        if self.settings.forwarding == "normal":
            return "actions=NORMAL\n"
        return rule_flows(self.title, self.settings, rules)

    def _check_ports(self) -> None:
        rows = self._interface_rows()
        for port in self._ports:
            name, _ = self._interface(port)
            row = rows.get(name, {})
            if row.get("error") or row.get("ofport") != port.number:
                reason = row.get("error") or f"its OpenFlow port number is {row.get('ofport')}"
                raise DutError(f"{self.title} has no port {port.number} on {name}: {reason}\n{self._log_end()}")

    def await_ready(self, timeout_s: float) -> None:
        """Wait until the link of every port is up."""
        names = {self._interface(port)[0]: port for port in self._ports}
        waits = [word for name in names for word in ("--", "wait-until", "interface", name, "link_state=up")]
        try:
            self._vsctl(*waits[1:], timeout_s=timeout_s)
        except HostError as error:
            self.check()
            rows = self._interface_rows()
            down = [
                f"port {port.number} ({port.cable.kind} {port.cable.dut_end})"
                for name, port in names.items()
                if rows.get(name, {}).get("link_state") != "up"
            ]
            if not down:
                return
            raise DutError(f"{self.title}: not up within {timeout_s:g} s: {', '.join(down)}\n{self._log_end()}") from error

    def check(self) -> None:
        """Check that database and switch are running."""
        if self._database is None:
            raise DutError(f"{self.title} was not started")
        super().check()

    def stop(self) -> None:
        """Stop both daemons, and remove bridges, taps and files."""
        for process, control in ((self._switch, "vswitchd.ctl"), (self._database, "ovsdb.ctl")):
            if process is None:
                continue
            if process.is_running():
                # Plain `exit` leaves the datapath's taps behind.
                self._appctl(control, "exit", *(["--cleanup"] if process is self._switch else []), check=False)
            process.stop()
        super().stop()
        # A killed daemon could not clean up.
        for name in (*self._bridges, *(() if self._had_datapath_tap else (DATAPATH_TAP,))):
            if self._has_interface(name):
                self.host.run(["ip", "link", "delete", name], check=False)
        if self._database is not None:
            self.host.run(["rm", "-rf", str(self._folder)], check=False)
        self._bridges, self._had_datapath_tap = (), True

    # What it reports

    def collect(self) -> dict[str, int]:
        """Return the counters of its ports and polling threads, and the drops of the datapath."""
        result: dict[str, int] = {}
        try:
            for bridge in self._bridges:
                # The reply includes the causes of drops from OpenFlow 1.4 on.
                result |= counters.parse_ports(self._ofctl("dump-ports", bridge, version="OpenFlow14").stdout)
            result |= counters.parse_polling_threads(self._appctl("vswitchd.ctl", "dpif-netdev/pmd-stats-show").stdout)
            result |= counters.parse_drops(self._appctl("vswitchd.ctl", "coverage/show").stdout)
        except HostError as error:
            raise self._failure("does not report its counters", error) from error
        return result

    def busy_s(self) -> float | None:
        """Return the processing cycles of its polling threads as time; None if no thread polls."""
        cycles, began_s = self._polling_cycles(), time.monotonic()
        if cycles is None:
            return None
        if self._cycles_per_s is None:
            # A polling thread counts every cycle, with or without frames.
            time.sleep(CALIBRATION_S)
            after, ended_s = self._polling_cycles(), time.monotonic()
            if after is None or after.all <= cycles.all:
                return None
            self._cycles_per_s = (after.all - cycles.all) / (ended_s - began_s) / after.threads
        return cycles.processing / self._cycles_per_s

    def _polling_cycles(self) -> counters.PollingCycles | None:
        try:
            output = self._appctl("vswitchd.ctl", "dpif-netdev/pmd-stats-show").stdout
        except HostError as error:
            raise self._failure("does not report its cycles", error) from error
        return counters.polling_cycles(counters.parse_polling_threads(output))

    def processes(self) -> Sequence[Process]:
        """Return the switch, its database, and what else the device launched."""
        return [process for process in (self._switch, self._database, *self._launched) if process is not None]

    def versions(self) -> dict[str, str]:
        """Return the version of Open vSwitch, and of DPDK if built in."""
        versions = counters.parse_version(self.host.run([self._daemon[0], "--version"]).stdout)
        return versions | flows_file_version(self.title, self.settings)

    def environment(self) -> dict[str, str]:
        """Return the variables for its tools: `ovs-vsctl show`, `ovs-ofctl dump-flows $OVS_BRIDGE`, `ovs-appctl -t $OVS_CONTROL ...`."""
        return self._env | {
            "OVS_CONTROL": str(self._folder / "vswitchd.ctl"),
            "OVS_BRIDGE": self._bridges[0] if self._bridges else "",
        }

    def port_modes(self) -> dict[str, str]:
        """Return type and mode of each port, as the switch reports them."""
        rows = self._interface_rows()
        result = {}
        for port in self._ports:
            row = rows.get(self._interface(port)[0], {})
            status = row.get("status") or {}
            details = [f"{name} {status[name]}" for name in ("mode", "xdp-mode", "driver_name", "num_of_vrings", "n_rxq") if name in status]
            result[str(port.number)] = ", ".join([f"{port.cable.kind} as {row.get('type') or 'system'}", *details])
        return result

    # Its tools

    def _check_kind(self, cable: Cable) -> None:
        if cable.kind not in self.carries:
            reason = self.refusals.get(cable.kind, "there is no driver for it")
            raise DutError(f"{self.title} does not carry {cable.kind} ({cable.name}): {reason}")

    def _vsctl(self, *arguments: str, timeout_s: float = 15.0) -> Completed:
        argv = ["ovs-vsctl", f"--db=unix:{self._folder / 'db.sock'}", f"--timeout={max(1, round(timeout_s))}", *arguments]
        return self.host.run(argv, timeout_s=timeout_s + 5, env=self._env)

    def _ofctl(
        self, command: str, bridge: str, *arguments: str, version: str = "OpenFlow13", stdin: str = "", timeout_s: float = 15.0
    ) -> Completed:
        socket = f"unix:{self._folder / f'{bridge}.mgmt'}"
        argv = ["ovs-ofctl", f"--timeout={round(timeout_s)}", "-O", version, command, socket, *arguments]
        return self.host.run(argv, stdin=stdin, timeout_s=timeout_s + 15, env=self._env)

    def _appctl(self, control: str, *arguments: str, check: bool = True) -> Completed:
        # An absolute path: ovs-appctl looks up relative ones in OVS_RUNDIR.
        argv = ["ovs-appctl", "--timeout=15", "-t", str(self._folder / control), *arguments]
        return self.host.run(argv, env=self._env, check=check)

    def _interface_rows(self) -> dict[str, dict[str, Any]]:
        columns = "name,type,ofport,error,link_state,status"
        try:
            return counters.parse_interfaces(json.loads(self._vsctl("--format=json", f"--columns={columns}", "list", "interface").stdout))
        except HostError as error:
            raise self._failure("does not report its interfaces", error) from error
        except ValueError as error:
            raise DutError(f"{self.title} does not report its interfaces: {error}") from error

    def _has_interface(self, name: str) -> bool:
        return self.host.run(["ip", "link", "show", "dev", name], check=False).status == 0

    def _log_end(self) -> str:
        """Return its latest warnings and errors; the rest of the log is long."""
        lines = [] if self._switch is None else self._switch.output().splitlines()
        return "\n".join([line for line in lines if re.search(r"\|(WARN|ERR|EMER)\|", line)][-LOG_END_LINES:])

    def _failure(self, problem: str, error: HostError) -> DutError:
        for process in self.processes():
            if why := process.death():
                return DutError(f"{self.title} {problem}: {process.name} {why}")
        return DutError(f"{self.title} {problem}: {error}\n{self._log_end()}")


class Ovs(OpenVSwitch):
    """The build without DPDK."""

    title: ClassVar[str] = "Open vSwitch (userspace datapath, without DPDK)"
    settings_type: ClassVar[type[DutSettings]] = OvsSettings
    carries: ClassVar[frozenset[CableKind]] = frozenset({CableKind.VETH, CableKind.TAP, CableKind.NIC})
    # Debian's package has the daemon at the path that the alternatives system uses.
    build_programs: ClassVar[Programs] = {
        "ovs-vswitchd": ("usr/lib/openvswitch-switch/ovs-vswitchd", "ovs-vswitchd"),
        **dict.fromkeys(TOOLS, ()),
    }
    # The kernel's own counters of its interfaces.
    no_room_counters: ClassVar[Mapping[CableKind, str]] = {CableKind.VETH: "tx_drops"}
    refusals: ClassVar[Mapping[CableKind, str]] = {
        CableKind.VHOST_USER: "vhost-user needs DPDK: use driver ovs-dpdk",
        CableKind.MEMIF: "memif needs DPDK: use driver ovs-dpdk with vhost-user",
    }
    settings: OvsSettings

    @property
    def _daemon(self) -> tuple[str, str]:
        return "ovs-vswitchd", "openvswitch-switch"

    def _start_settings(self) -> dict[str, str]:
        return {"pmd-cpu-mask": self._pmd_mask, **self.settings.other_config}

    def _interface(self, port: DutPort) -> tuple[str, dict[str, str]]:
        self._check_kind(port.cable)
        if port.cable.kind is CableKind.TAP or self.settings.veth_mode == "system":
            return port.cable.dut_end, {}
        return port.cable.dut_end, {
            "type": "afxdp",
            "options:n_rxq": str(self.placement.queues),
            "options:xdp-mode": self.settings.xdp_mode,
        }


class OvsDpdk(OpenVSwitch):
    """The build with DPDK."""

    title: ClassVar[str] = "Open vSwitch with DPDK"
    settings_type: ClassVar[type[DutSettings]] = OvsDpdkSettings
    carries: ClassVar[frozenset[CableKind]] = frozenset({CableKind.VHOST_USER, CableKind.VETH, CableKind.VFIO})
    single_queue: ClassVar[frozenset[CableKind]] = frozenset({CableKind.VETH})
    huge_pages_mib: ClassVar[int] = MEMORY_MIB
    # The kernel clears its memory first.
    start_s: ClassVar[float] = 8.0
    build_programs: ClassVar[Programs] = {DPDK_DAEMON: (DPDK_DAEMON[1:], "ovs-vswitchd"), **dict.fromkeys(TOOLS, ())}
    received_counters: ClassVar[tuple[str, ...]] = ("rx_frames", "rx_drops")
    no_room_counters: ClassVar[Mapping[CableKind, str]] = {CableKind.VHOST_USER: "ovs_tx_failure_drops"}
    refusals: ClassVar[Mapping[CableKind, str]] = {
        CableKind.MEMIF: "DPDK 22.11's memif under Open vSwitch 3.1 receives but transmits nothing; use vhost-user",
        CableKind.NIC: "DPDK drives cards itself; use vfio",
        CableKind.TAP: "QEMU's cards connect to it by vhost-user",
    }
    settings: OvsDpdkSettings

    def __init__(self, settings: DutSettings, placement: Placement) -> None:
        """Store validated settings."""
        super().__init__(settings, placement)
        self._veth = DpdkVeth(self, self.settings.veth_mode)

    def prepare(self) -> None:
        """Check for the daemons and their tools."""
        super().prepare()
        self._veth.prepare()

    def start(self) -> None:
        """Start the daemon of its libpcap, the database and the switch."""
        self._veth.start()
        super().start()

    def collect(self) -> dict[str, int]:
        """Return the counters of Open vSwitch, and the drops of its libpcap's daemon."""
        return super().collect() | self._veth.dropped([port for port in self._ports if port.cable.kind is CableKind.VETH])

    def busy_s(self) -> float | None:
        """Return the polling threads' processing cycles as time, and the time of its libpcap's daemon."""
        busy_s = super().busy_s()
        return None if busy_s is None else busy_s + self._veth.busy_s()

    def versions(self) -> dict[str, str]:
        """Return the versions of Open vSwitch and DPDK, and of Ringroad if its libpcap is used."""
        return super().versions() | self._veth.versions()

    def port_modes(self) -> dict[str, str]:
        """Return type and mode of each port; of one on a veth pair also DPDK's driver and its libpcap."""
        modes = super().port_modes()
        veth = {str(port.number): self._veth.port_mode(port.cable) for port in self._ports if port.cable.kind is CableKind.VETH}
        return modes | {number: f"{modes[number]}, {mode}" for number, mode in veth.items()}

    def _switch_command(self) -> list[str]:
        return self._veth.command(super()._switch_command())

    @property
    def _daemon(self) -> tuple[str, str]:
        return DPDK_DAEMON, "openvswitch-switch-dpdk"

    def _start_settings(self) -> dict[str, str]:
        prefix = f"--file-prefix=ovs-{self.host.folder.name[-8:]}"
        # DPDK must probe only the cards of the ports: no card has this address.
        pci = "--allow=0000:00:00.0" if self.placement.has_dpdk_cards else "--no-pci"
        if self.placement.huge_pages:
            # No page more: the other reserved pages are for the guests. All on the NUMA node of the main thread.
            node = min(NumaNodes.of(self.host).of_processors({min(self.placement.cpus)}), default=0)
            mib = ",".join(["0"] * node + [str(MEMORY_MIB)])
            memory = {"dpdk-socket-mem": mib, "dpdk-socket-limit": mib}
            extra = f"{pci} --in-memory --single-file-segments {prefix}"
        else:
            memory = {}
            extra = f"{pci} --no-huge --legacy-mem -m {MEMORY_MIB} {prefix}"
        result = {
            "dpdk-init": "true",
            # The main thread runs on the processors of the polling threads, so that the whole cost of the device is measured there.
            "dpdk-lcore-mask": hex(1 << min(self.placement.cpus)),
            "pmd-cpu-mask": self._pmd_mask,
            **memory,
            "dpdk-extra": extra,
            "per-port-memory": json.dumps(not self.settings.shared_buffers),
        }
        if self.settings.emc_insert_inv_prob is not None:
            result["emc-insert-inv-prob"] = str(self.settings.emc_insert_inv_prob)
        return result | self.settings.other_config

    def _interface(self, port: DutPort) -> tuple[str, dict[str, str]]:
        cable = port.cable
        self._check_kind(cable)
        if cable.kind is CableKind.VHOST_USER:
            # The peer determines the number of queues.
            if cable.is_dut_server:
                raise DutError(f"{self.title} joins the socket of {cable.name} as a client: the far end must create it")
            return f"vu-{cable.name}", {"type": "dpdkvhostuserclient", "options:vhost-server-path": cable.dut_end}
        queues = self.placement.queues
        if cable.kind is CableKind.VFIO:
            return f"card-{cable.name}", {"type": "dpdk", "options:dpdk-devargs": cable.dut_end, "options:n_rxq": str(queues)}
        if queues > 1 and cable.kind is CableKind.VETH:
            # net_af_xdp counts combined channels; veth has separate ones.
            raise DutError(
                f"{self.title}: DPDK's net_af_xdp has one queue on veth ({cable.name}), not {queues}: use vhost-user, or one queue"
            )
        devargs = self._veth.devargs(f"_{cable.name}", cable)
        return f"dpdk-{cable.name}", {"type": "dpdk", "options:dpdk-devargs": devargs, "options:n_rxq": str(queues)}


def _under(port: DutPort) -> str:
    """Return the name of the bridge of a port that carries tunneled frames."""
    return f"bu-{port.cable.name}"


def _tunnel(port: DutPort) -> str:
    return f"vx-{port.cable.name}"


def _quoted(value: str) -> str:
    """Quote any value for ovs-vsctl."""
    return json.dumps(value)
