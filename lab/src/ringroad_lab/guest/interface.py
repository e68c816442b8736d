"""The lab's interfaces to guests, and to other machines at the far ends of cables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from ringroad_lab.build.opened import Programs
from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.dut.interface import Placement
from ringroad_lab.errors import GuestError
from ringroad_lab.host.interface import Host, Process
from ringroad_lab.kinds import Kinds
from ringroad_lab.record import LogExcerpt

# Cables of guests if the scenario names none, in order of preference: shared memory first.
GUEST_CABLES = (CableKind.VHOST_USER, CableKind.MEMIF, CableKind.VETH, CableKind.TAP)


def guest_cable(wanted: CableKind | None, carried: frozenset[CableKind]) -> CableKind | None:
    """Return the kind of a guest's cables: `wanted`, else the best kind that both device and guest carry; None if there is none."""
    return wanted or next((kind for kind in (*GUEST_CABLES, *sorted(carried)) if kind in carried), None)


class Peer(ABC):
    """A virtual machine, or a stand-in for one, at the far ends of cables."""

    carries: ClassVar[frozenset[CableKind]]
    start_s: ClassVar[float] = 3.0
    """Duration of its start, s, for the plan."""
    build_programs: ClassVar[Programs] = {}
    """Programs of the machine that a build can replace."""
    program: ClassVar[str] = ""
    """Its program, in messages."""
    boots_kernel: ClassVar[bool] = False
    """Whether the machine boots a kernel, which a build can replace."""

    def __init__(self, name: str, placement: Placement) -> None:
        """Set its name, which must be unique in the run."""
        self.name = name
        self.placement = placement
        self._process: Process | None = None

    @property
    def host(self) -> Host:
        """The machine on which it runs."""
        return self.placement.host

    @abstractmethod
    def prepare(self) -> None:
        """Check for all required programs.

        Raises:
            MissingProgramError: names the Debian package.
        """

    def check(self) -> None:
        """Check that the machine is running.

        Raises:
            GuestError: with the end of its log.
        """
        if why := self._process.death() if self._process else "was not started":
            raise GuestError(f"guest {self.name} ({self.program}) {why}")

    def processes(self) -> Sequence[Process]:
        """Return the processes to sample for processor time and memory."""
        return [self._process] if self._process else []

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Return the version of each program."""

    def machine(self) -> str:
        """Return memory, processors and boot parameters of a virtual machine, for display; empty: it is none."""
        return ""

    def files(self) -> Sequence[str]:
        """Return further files that identify the machine, such as the image of its kernel."""
        return ()

    def logs(self) -> Sequence[LogExcerpt]:
        """Return the output of its programs."""
        return [LogExcerpt(source=f"guest {self.name}", text=process.output()) for process in self.processes()]

    @abstractmethod
    def stop(self) -> None:
        """Stop the machine. Can be called at any point, any number of times."""


class Guest(Peer):
    """Forwards every frame between its two cables."""

    single_queue: ClassVar[frozenset[CableKind]] = frozenset()
    """Kinds of cables over which the guest has exactly one queue pair."""
    is_stand_in: ClassVar[bool]
    """Whether the guest is a program in place of a virtual machine, which the report states."""
    huge_pages_mib: ClassVar[int] = 0
    """Memory in pages of 2 MiB that the guest needs if its placement has huge pages."""

    @abstractmethod
    def start(self, cables: tuple[Cable, Cable]) -> None:
        """Start the guest with both cables plugged in, and wait until it forwards.

        Raises:
            GuestError: with the end of its log.
        """


GUESTS: Kinds[Guest] = Kinds(
    "ringroad_lab.guests",
    Guest,
    {
        "testpmd": "guest.testpmd:TestpmdGuest",
        "testpmd-macswap": "guest.testpmd:TestpmdMacswapGuest",
        "testpmd-csum": "guest.testpmd:TestpmdCsumGuest",
        "linux-bridge": "guest.namespace_bridge:NamespaceBridgeGuest",
        "qemu-testpmd": "guest.qemu:QemuTestpmdGuest",
        "qemu-testpmd-csum": "guest.qemu:QemuTestpmdCsumGuest",
        "qemu-linux-bridge": "guest.qemu:QemuBridgeGuest",
    },
)
