"""The lab's interfaces to guests, and to what else is plugged in where a guest may be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from ringroad_lab.build.opened import Programs
from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.dut.interface import Placement
from ringroad_lab.host.interface import Process
from ringroad_lab.record import LogExcerpt

# Cables of guests, where the scenario leaves the choice: shared memory first.
GUEST_CABLES = (CableKind.VHOST_USER, CableKind.MEMIF, CableKind.VETH, CableKind.TAP)


def guest_cable(wanted: CableKind | None, carried: frozenset[CableKind]) -> CableKind | None:
    """Return the kind of a guest's cables: the one that is wanted, else the best that device and guest both carry; None without any."""
    return wanted or next((kind for kind in (*GUEST_CABLES, *sorted(carried)) if kind in carried), None)


class Machine(ABC):
    """A virtual machine, or what stands in for one, at the far ends of cables."""

    carries: ClassVar[frozenset[CableKind]]
    start_s: ClassVar[float] = 3.0
    """What its start takes, s, for the plan."""
    build_programs: ClassVar[Programs] = {}
    """Its own programs, of which there may be other builds."""
    boots_kernel: ClassVar[bool] = False
    """Whether it has a kernel of its own, which a build may bring."""

    def __init__(self, name: str, placement: Placement) -> None:
        """Name it, uniquely in the run."""
        self.name = name
        self.placement = placement

    @abstractmethod
    def prepare(self) -> None:
        """Look for all that it needs.

        Raises:
            MissingProgramError: names the Debian package.
        """

    @abstractmethod
    def check(self) -> None:
        """Check that it lives.

        Raises:
            GuestError: with the end of its log.
        """

    @abstractmethod
    def processes(self) -> Sequence[Process]:
        """Return what is watched for processor time and memory."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Return the version of each of its programs."""

    def files(self) -> Sequence[str]:
        """Return files beside its programs that make it what it is: the image of its kernel."""
        return ()

    @abstractmethod
    def logs(self) -> Sequence[LogExcerpt]:
        """Return what its programs said."""

    @abstractmethod
    def stop(self) -> None:
        """End it; possible at any point, any number of times."""


class Guest(Machine):
    """Forwards every frame between its two cables."""

    kind: ClassVar[str]
    """As scenarios name it: `testpmd`, `linux-bridge`, `qemu-testpmd`, `qemu-linux-bridge`."""
    single_queue: ClassVar[frozenset[CableKind]] = frozenset()
    """Kinds of cables over which it has one queue pair and no more."""
    is_stand_in: ClassVar[bool]
    """Whether it is a program in place of a virtual machine; the report says so."""
    huge_pages_mib: ClassVar[int] = 0
    """Memory in pages of 2 MiB that it needs where its placement has such."""

    @abstractmethod
    def start(self, cables: tuple[Cable, Cable]) -> None:
        """Start it, plugged in at both ends, and wait until it forwards.

        Raises:
            GuestError: with the end of its log.
        """
