"""The lab's interface to a device under test."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from ringroad_lab.build.opened import Build, Programs
from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.host.interface import Host, Process
from ringroad_lab.record import LogExcerpt


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
    build: Build | None = None
    """What it runs, where that is not the machine's own; the host gives it these programs by their usual names."""


class Dut(ABC):
    """A device under test. Made, prepared, started, configured, measured, stopped; in that order, once."""

    driver: ClassVar[str]
    """As scenarios name it: `ovs-dpdk`."""
    title: ClassVar[str]
    """For people: `Open vSwitch with DPDK`."""
    settings_type: ClassVar[type[DutSettings]]
    carries: ClassVar[frozenset[CableKind]]
    """Kinds of cables that it has ports for."""
    single_queue: ClassVar[frozenset[CableKind]] = frozenset()
    """Those over which it has one queue pair and no more."""
    obeys_rules: ClassVar[bool]
    """Whether it forwards by rules; else it learns addresses, and PVP is a bridge for each pair of ports."""
    serves_sockets: ClassVar[bool] = True
    """Of cables that are sockets: whether it makes them and listens, or connects to the other end, again and again until that listens."""
    huge_pages_mib: ClassVar[int] = 0
    """Memory in pages of 2 MiB that it needs where its placement has such."""
    start_s: ClassVar[float] = 4.0
    """What its start, wiring and stop take, s, for the plan."""
    build_programs: ClassVar[Programs] = {}
    """Its own programs, of which there may be other builds; empty where the kernel forwards."""

    def __init__(self, settings: DutSettings, placement: Placement) -> None:
        """Take checked settings, of `settings_type`."""
        self.settings = settings
        self.placement = placement

    @abstractmethod
    def prepare(self) -> None:
        """Look for all that it needs.

        Raises:
            MissingProgramError: names the Debian package.
        """

    @abstractmethod
    def start(self) -> None:
        """Start its programs.

        Raises:
            DutError: with the end of their logs.
        """

    @abstractmethod
    def configure(self, ports: Sequence[DutPort], rules: Sequence[Rule]) -> None:
        """Make its ports and say what goes where.

        Raises:
            DutError: it refused.
        """

    def plugged_in(self, cable: Cable) -> Cable:
        """Return a cable as it is once `configure` has plugged it in: some devices take its end into their own namespace."""
        return cable

    @abstractmethod
    def await_ready(self, timeout_s: float) -> None:
        """Wait until every port is up: called when the far ends are plugged in.

        Raises:
            DutError: which port is not.
        """

    @abstractmethod
    def check(self) -> None:
        """Check that it lives.

        Raises:
            DutError: which program ended, with the end of its log.
        """

    @abstractmethod
    def collect(self) -> dict[str, int]:
        """Return its own counters, named `PORT.COUNTER` or `COUNTER`: frames in and out, drops by cause, cycles."""

    @abstractmethod
    def processes(self) -> Sequence[Process]:
        """Return what is watched for processor time and memory; empty where the kernel itself forwards."""

    def busy_s(self) -> float | None:
        """Return for how long its forwarding threads have had frames in hand, from any beginning; None where it does not tell.

        Raises:
            DutError: it does not answer.
        """
        return None

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Return the version of each of its programs."""

    @abstractmethod
    def port_modes(self) -> dict[str, str]:
        """Return what carries each port, and in which mode: zero-copy, native, emulated, ..."""

    @abstractmethod
    def logs(self) -> Sequence[LogExcerpt]:
        """Return what its programs said."""

    @abstractmethod
    def stop(self) -> None:
        """End its programs and remove what it made; possible at any point, any number of times."""
