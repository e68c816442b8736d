"""The lab's interface to a device under test."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from ringroad_lab.build.opened import Build, Programs
from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.errors import DutError, HostError
from ringroad_lab.host.interface import Host, Process
from ringroad_lab.kinds import Kinds
from ringroad_lab.loss import EndCounts
from ringroad_lab.record import LogExcerpt
from ringroad_lab.trial import FlowSet, Frozen

PortNumber = Annotated[int, Field(ge=1, le=6)]


class DutSettings(Frozen):
    """Settings of a device; each driver has its own type."""

    def why_stations_only(self, kind: CableKind) -> str:
        """Return why over these cables the device can be measured only by methods between stations; empty if it can by all."""
        return ""


@dataclass(frozen=True)
class DutPort:
    """A port of the device."""

    number: int
    """Number from 1; the OpenFlow port number where the device supports OpenFlow."""
    cable: Cable


@dataclass(frozen=True)
class Rule:
    """Forward every frame received at `in_port` to `out_port`."""

    in_port: int
    out_port: int


@dataclass(frozen=True)
class Placement:
    """Place of a device: its host and processors."""

    host: Host
    cpus: frozenset[int]
    """Processors of its forwarding threads."""
    queues: int = 1
    huge_pages: bool = True
    """Whether pages of 2 MiB are reserved for the device; without them, drivers configure ordinary memory."""
    has_dpdk_cards: bool = False
    """Whether some ports are cards that DPDK drives and has to probe."""
    build: Build | None = None
    """Build whose programs run in place of the machine's own; the host finds these programs by their usual names."""


class Dut(ABC):
    """A device under test. Create, prepare, start, configure, measure and stop it, in that order, once.

    The smallest device has `title`, `carries`, `start` and `configure`. Programs started by `launch` are checked, sampled, queried for
    their versions, and stopped. The counters of such a device are unknown, and its ports are ready when frames pass.
    """

    title: ClassVar[str]
    """Title for people: `Open vSwitch with DPDK`."""
    settings_type: ClassVar[type[DutSettings]] = DutSettings
    carries: ClassVar[frozenset[CableKind]]
    """Kinds of cables that the device has ports for."""
    single_queue: ClassVar[frozenset[CableKind]] = frozenset()
    """Kinds of cables over which the device has exactly one queue pair."""
    learns: ClassVar[bool] = False
    """Whether `configure` without rules makes a learning switch of all ports."""
    serves_sockets: ClassVar[bool] = True
    """Whether the device creates the socket of a cable and listens, or connects, retrying until the other end listens."""
    huge_pages_mib: ClassVar[int] = 0
    """Memory in pages of 2 MiB that the device needs if its placement has huge pages."""
    start_s: ClassVar[float] = 4.0
    """Duration of start, wiring and stop together, s, for the plan."""
    build_programs: ClassVar[Programs] = {}
    """Programs of the device that a build can replace; empty if the kernel forwards."""
    received_counters: ClassVar[tuple[str, ...]] = ("rx_frames",)
    """Counters of a port, named as in `collect`, whose sum is the frames that reached the port, accepted or not. The first one is
    required."""
    sent_counter: ClassVar[str] = "tx_frames"
    """Counter of the frames that a port transmitted."""
    no_room_counters: ClassVar[Mapping[CableKind, str]] = {}
    """Counter of frames that a port dropped because the other end did not accept them, by kind of cable. Only for cables where a slow
    other end is the only cause: shared memory that the other end empties, and the queue of a veth's other end."""
    forwards_for_sender: ClassVar[bool] = False
    """Whether over veth all forwarding work runs in the sender's thread."""

    def __init__(self, settings: DutSettings, placement: Placement) -> None:
        """Store validated settings of type `settings_type`."""
        self.settings = settings
        self.placement = placement
        self._launched: list[Process] = []

    @property
    def host(self) -> Host:
        """The machine that the device runs on."""
        return self.placement.host

    def prepare(self) -> None:
        """Check for all required programs, by `self.host.require(PROGRAM, PACKAGE)`.

        Raises:
            MissingProgramError: names the Debian package.
        """

    @abstractmethod
    def start(self) -> None:
        """Start the programs of the device. Programs that take their ports as start arguments can wait for `configure`.

        Raises:
            DutError: with the end of their logs.
        """

    @abstractmethod
    def configure(self, ports: Sequence[DutPort], rules: Sequence[Rule]) -> None:
        """Create the ports and set the forwarding rules. Without rules all ports are on one learning switch, if the device `learns`.

        Raises:
            DutError: the device refused.
        """

    def install_flows(self, flow_set: FlowSet | None) -> float:
        """Replace the contents of the flow table by the entries of a flow set; None: by the entries that `configure` made.

        Returns:
            Time to add the entries, s.

        Raises:
            DutError: the device has no flow table, or refused.
        """
        raise DutError(f"{self.title} has no flow table for the entries of a flow set")

    def launch(self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, is_bound: bool = True) -> Process:
        """Start a program, bound to the device's processors unless it binds itself; it is checked, and stopped with the device.

        Raises:
            DutError: the program could not be started.
        """
        try:
            process = self.host.start(name, argv, env=env, cpus=self.placement.cpus if is_bound else None)
        except HostError as error:
            raise DutError(f"{self.title} did not start: {error}") from error
        self._launched.append(process)
        return process

    def plugged_in(self, cable: Cable) -> Cable:
        """Return a cable as it is after `configure`: some devices move their end into their own namespace."""
        return cable

    def await_ready(self, timeout_s: float) -> None:
        """Wait until every port is up. Called when the far ends are plugged in; afterwards the lab waits until frames pass.

        Raises:
            DutError: names the port that is not up.
        """

    def check(self) -> None:
        """Check that all programs are running.

        Raises:
            DutError: names the program that ended, with the end of its log.
        """
        for process in self.processes():
            if why := process.death():
                raise DutError(f"{process.name} of {self.title} {why}")

    def collect(self) -> dict[str, int]:
        """Return the device's counters, named `PORT.COUNTER` or `COUNTER`: frames in and out, drops by cause, cycles. Empty: unknown."""
        return {}

    def end_counts(self, ports: Sequence[DutPort], collected: Mapping[str, int]) -> dict[int, EndCounts]:
        """Return the received and sent frames of each port from the collected counters; None for counts that the device does not have."""
        found = {}
        for port in ports:
            counters = {name: collected.get(f"{port.number}.{name}") for name in (*self.received_counters, self.sent_counter)}
            no_room = self.no_room_counters.get(port.cable.kind)
            is_reported = counters[self.received_counters[0]] is not None
            found[port.number] = EndCounts(
                received=sum(counters[name] or 0 for name in self.received_counters) if is_reported else None,
                sent=counters[self.sent_counter],
                no_room=collected.get(f"{port.number}.{no_room}") if no_room else None,
            )
        return found

    def processes(self) -> Sequence[Process]:
        """Return the processes to sample for processor time and memory, each with its children; empty if the kernel forwards."""
        return self._launched

    def busy_s(self) -> float | None:
        """Return the forwarding threads' time spent on frames, s, since an arbitrary start; None if the device does not report it.

        Raises:
            DutError: the device does not answer.
        """
        return None

    def versions(self) -> dict[str, str]:
        """Return the version of each program; by default the path of its executable from /proc."""
        return {
            process.name: self.host.run(["readlink", f"/proc/{process.pid}/exe"], check=False).stdout.strip() or "unknown"
            for process in self.processes()
        }

    def port_modes(self) -> dict[str, str]:
        """Return the transport of each port and its mode: zero-copy, native, emulated, ... For other ports the record has the cable."""
        return {}

    def environment(self) -> dict[str, str]:
        """Return environment variables that let the commands of a test step reach the device: path of its socket, its namespace, ..."""
        return {}

    def logs(self) -> Sequence[LogExcerpt]:
        """Return the output of the device's programs."""
        return [LogExcerpt(source=process.name, text=process.output()) for process in self.processes()]

    def stop(self) -> None:
        """Stop the programs and remove everything that the device created. Can be called at any point, any number of times."""
        for process in reversed(self._launched):
            process.stop()


DUTS: Kinds[Dut] = Kinds(
    "ringroad_lab.duts",
    Dut,
    {
        "forwarder": "dut.forwarder:Forwarder",
        "linux-bridge": "dut.linux_bridge:LinuxBridge",
        "ovs": "dut.open_vswitch:Ovs",
        "ovs-dpdk": "dut.open_vswitch:OvsDpdk",
        "ringroad": "dut.ringroad:RingroadSwitch",
        "testpmd": "dut.testpmd:Testpmd",
    },
)
