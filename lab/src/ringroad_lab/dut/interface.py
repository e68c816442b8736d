"""The lab's interface to a device under test."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from ringroad_lab.build.opened import Build, Programs
from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.errors import DutError, HostError
from ringroad_lab.host.interface import Host, Process
from ringroad_lab.loss import EndCounts
from ringroad_lab.record import LogExcerpt
from ringroad_lab.trial import FlowSet

PortNumber = Annotated[int, Field(ge=1, le=6)]


class DutSettings(BaseModel):
    """What can be set of a device; each driver has its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class DutPort:
    """A port of the device."""

    number: int
    """From 1; OpenFlow port number where the device has such."""
    cable: Cable


@dataclass(frozen=True)
class Rule:
    """Frames that come in at one port go out at another, whatever they are."""

    in_port: int
    out_port: int


@dataclass(frozen=True)
class Placement:
    """Where the device runs."""

    host: Host
    cpus: frozenset[int]
    """Processors of its forwarding threads."""
    queues: int = 1
    huge_pages: bool = True
    """Whether pages of 2 MiB are reserved for it; without, drivers use ordinary memory and say so in their settings."""
    has_dpdk_cards: bool = False
    """Whether ports of it are cards that DPDK drives, and has to look for."""
    build: Build | None = None
    """What it runs, where that is not the machine's own; the host gives it these programs by their usual names."""


class Dut(ABC):
    """A device under test. Made, prepared, started, configured, measured, stopped; in that order, once.

    The smallest device has `title`, `carries`, `start` and `configure`. What it starts by `launch` is checked, watched, asked for its
    version, and ended; its counters are unknown, and its ports are ready when frames pass.
    """

    driver: ClassVar[str]
    """As scenarios name it: `ovs-dpdk`."""
    title: ClassVar[str]
    """For people: `Open vSwitch with DPDK`."""
    settings_type: ClassVar[type[DutSettings]] = DutSettings
    carries: ClassVar[frozenset[CableKind]]
    """Kinds of cables that it has ports for."""
    single_queue: ClassVar[frozenset[CableKind]] = frozenset()
    """Those over which it has one queue pair and no more."""
    serves_sockets: ClassVar[bool] = True
    """Of cables that are sockets: whether it makes them and listens, or connects to the other end, again and again until that listens."""
    huge_pages_mib: ClassVar[int] = 0
    """Memory in pages of 2 MiB that it needs where its placement has such."""
    start_s: ClassVar[float] = 4.0
    """What its start, wiring and stop take, s, for the plan."""
    build_programs: ClassVar[Programs] = {}
    """Its own programs, of which there may be other builds; empty where the kernel forwards."""
    received_counters: ClassVar[tuple[str, ...]] = ("rx_frames",)
    """Counters of a port, as `collect` names them, whose sum is the frames that came to it, taken or not; the first one has to be there."""
    sent_counter: ClassVar[str] = "tx_frames"
    """Counter of the frames that a port handed on."""
    no_room_counters: ClassVar[Mapping[CableKind, str]] = {}
    """By kind of cable: the counter of frames that a port dropped because the other end did not take them. Only for cables over which the
    other end's slowness is the only cause: shared memory that it empties, and the queue of a veth's other end."""
    forwards_for_sender: ClassVar[bool] = False
    """Whether over veth it does all of its work in the thread of whoever sends."""

    def __init__(self, settings: DutSettings, placement: Placement) -> None:
        """Take checked settings, of `settings_type`."""
        self.settings = settings
        self.placement = placement
        self._launched: list[Process] = []

    @property
    def host(self) -> Host:
        """The machine that it runs on."""
        return self.placement.host

    def prepare(self) -> None:
        """Look for all that it needs, by `self.host.require(PROGRAM, PACKAGE)`.

        Raises:
            MissingProgramError: names the Debian package.
        """

    @abstractmethod
    def start(self) -> None:
        """Start its programs; those that are told their ports when they start may wait for `configure`.

        Raises:
            DutError: with the end of their logs.
        """

    @abstractmethod
    def configure(self, ports: Sequence[DutPort], rules: Sequence[Rule]) -> None:
        """Make its ports and say what goes where.

        Raises:
            DutError: it refused.
        """

    def install_flows(self, flow_set: FlowSet | None) -> float:
        """Put the entries of a flow set into its flow table, in place of all that is there; None: those that `configure` made.

        Returns:
            How long it took to add them, s.

        Raises:
            DutError: it has no flow table, or refused.
        """
        raise DutError(f"{self.title} has no flow table that entries could be put into")

    def launch(self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> Process:
        """Start a program on the device's processors, and look after it from now on.

        Raises:
            DutError: it could not be started.
        """
        try:
            process = self.host.start(name, argv, env=env, cpus=self.placement.cpus)
        except HostError as error:
            raise DutError(f"{self.title} did not start: {error}") from error
        self._launched.append(process)
        return process

    def plugged_in(self, cable: Cable) -> Cable:
        """Return a cable as it is once `configure` has plugged it in: some devices take its end into their own namespace."""
        return cable

    def await_ready(self, timeout_s: float) -> None:
        """Wait until every port is up: called when the far ends are plugged in. After it the lab waits until frames pass.

        Raises:
            DutError: which port is not.
        """

    def check(self) -> None:
        """Check that it lives.

        Raises:
            DutError: which program ended, with the end of its log.
        """
        for process in self.processes():
            if why := process.death():
                raise DutError(f"{process.name} of {self.title} {why}")

    def collect(self) -> dict[str, int]:
        """Return its own counters, named `PORT.COUNTER` or `COUNTER`: frames in and out, drops by cause, cycles. Empty: unknown."""
        return {}

    def end_counts(self, ports: Sequence[DutPort], collected: Mapping[str, int]) -> dict[int, EndCounts]:
        """Return what of the collected counters tells which frames came and went, by port; what it does not count is None."""
        found = {}
        for port in ports:
            told = {name: collected.get(f"{port.number}.{name}") for name in (*self.received_counters, self.sent_counter)}
            no_room = self.no_room_counters.get(port.cable.kind)
            is_reported = told[self.received_counters[0]] is not None
            found[port.number] = EndCounts(
                received=sum(told[name] or 0 for name in self.received_counters) if is_reported else None,
                sent=told[self.sent_counter],
                no_room=collected.get(f"{port.number}.{no_room}") if no_room else None,
            )
        return found

    def processes(self) -> Sequence[Process]:
        """Return what is watched for processor time and memory, each with its children; empty where the kernel itself forwards."""
        return self._launched

    def busy_s(self) -> float | None:
        """Return for how long its forwarding threads have had frames in hand, from any beginning; None where it does not tell.

        Raises:
            DutError: it does not answer.
        """
        return None

    def versions(self) -> dict[str, str]:
        """Return the version of each of its programs; here what /proc says of them: the file that runs."""
        return {
            process.name: self.host.run(["readlink", f"/proc/{process.pid}/exe"], check=False).stdout.strip() or "unknown"
            for process in self.processes()
        }

    def port_modes(self) -> dict[str, str]:
        """Return what carries each port, and in which mode: zero-copy, native, emulated, ...; of others the record has the cable."""
        return {}

    def environment(self) -> dict[str, str]:
        """Return environment variables by which a test step's commands reach the device: where its socket is, its namespace, ..."""
        return {}

    def logs(self) -> Sequence[LogExcerpt]:
        """Return what its programs said."""
        return [LogExcerpt(source=process.name, text=process.output()) for process in self.processes()]

    def stop(self) -> None:
        """End its programs and remove what it made; possible at any point, any number of times."""
        for process in reversed(self._launched):
            process.stop()
