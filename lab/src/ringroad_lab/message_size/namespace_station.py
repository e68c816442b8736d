"""A network namespace as a station, in place of a virtual machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import ClassVar

from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.dut.interface import Placement
from ringroad_lab.errors import GuestError, HostError
from ringroad_lab.host.interface import Completed, Process
from ringroad_lab.message_size.station import Station
from ringroad_lab.record import LogExcerpt


class NamespaceStation(Station):
    """A namespace with one interface without offloads."""

    carries: ClassVar[frozenset[CableKind]] = frozenset({CableKind.VETH})

    def __init__(self, name: str, placement: Placement) -> None:
        """Take a name that is unique in the run."""
        super().__init__(name, placement)
        self._host = placement.host
        self._netns = f"{placement.host.folder.name}-{name}"
        self._interface: str | None = None
        self._is_made = False

    @property
    def folder(self) -> PurePosixPath:
        """Folder of the host."""
        return self._host.folder

    @property
    def title(self) -> str:
        """Kind of station, for users."""
        return "network namespace"

    def prepare(self) -> None:
        """Check that the program that creates namespaces is installed."""
        self._host.require("ip", "iproute2")

    def start(self, cable: Cable, address: str, programs: Sequence[str]) -> None:
        """Create the namespace and attach the cable."""
        if cable.kind is not CableKind.VETH:
            raise GuestError(f"{self.name} does not carry {cable.kind} ({cable.name}): namespaces are connected by veth")
        interface = cable.far_end
        try:
            self._host.run(["ip", "netns", "add", self._netns])
            self._is_made = True
            self._host.run(["ip", "link", "set", "dev", interface, "netns", self._netns])
            self._interface = interface
            self._switch_offloads_off(interface)
            self.run(["ip", "address", "add", address, "dev", interface])
            self.run(["ip", "link", "set", "dev", interface, "up"])
            self.run(["ip", "link", "set", "dev", "lo", "up"])
        except HostError as error:
            raise GuestError(f"{self.name}: {error}") from error
        self.address = address.partition("/")[0]

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0, check: bool = True) -> Completed:
        """Run a command in the namespace and wait for its end."""
        cpus = sorted(self.placement.cpus)
        bound = ["taskset", "--cpu-list", ",".join(map(str, cpus))] if cpus else []
        return self._host.run(["ip", "netns", "exec", self._netns, *bound, *argv], timeout_s=timeout_s, check=check)

    def start_program(self, name: str, argv: Sequence[str]) -> Process:
        """Start a program in the namespace."""
        return self._host.start(name, ["ip", "netns", "exec", self._netns, *argv], cpus=self.placement.cpus)

    def check(self) -> None:
        """Do nothing: the kernel is always alive."""

    def processes(self) -> Sequence[Process]:
        """Return none: programs run only temporarily."""
        return ()

    def versions(self) -> dict[str, str]:
        """Return nothing: the host's record has the kernel version."""
        return {}

    def logs(self) -> Sequence[LogExcerpt]:
        """Return no logs."""
        return ()

    def stop(self) -> None:
        """Return the interface to the host and delete the namespace; can be called any number of times."""
        if not self._is_made:
            return
        if self._interface is not None:
            # $$ is a process in the host's own namespace.
            move = 'ip -n "$1" link set "$2" netns $$'
            self._host.run(["sh", "-c", move, "sh", self._netns, self._interface], check=False)
        self._host.run(["ip", "netns", "delete", self._netns], check=False)
        self._interface, self._is_made = None, False
