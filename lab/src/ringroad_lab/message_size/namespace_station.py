"""A network namespace as a station, in place of a virtual machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.dut.interface import Placement
from ringroad_lab.errors import GuestError, HostError
from ringroad_lab.guest.namespace import NamespacePeer
from ringroad_lab.host.interface import Completed, Process
from ringroad_lab.message_size.station import Station


class NamespaceStation(NamespacePeer, Station):
    """A namespace with one interface without offloads."""

    title: ClassVar[str] = "network namespace"

    def __init__(self, name: str, placement: Placement) -> None:
        """Take a name that is unique in the run."""
        super().__init__(name, placement)
        self.folder = placement.host.folder

    def start(self, cable: Cable, address: str, programs: Sequence[str]) -> None:
        """Create the namespace and attach the cable."""
        if cable.kind is not CableKind.VETH:
            raise GuestError(f"{self.name} does not carry {cable.kind} ({cable.name}): namespaces are connected by veth")
        interface = cable.far_end
        try:
            self._make()
            self._take(interface)
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
        return self.host.run(["ip", "netns", "exec", self._netns, *bound, *argv], timeout_s=timeout_s, check=check)

    def start_program(self, name: str, argv: Sequence[str]) -> Process:
        """Start a program in the namespace."""
        return self.host.start(name, ["ip", "netns", "exec", self._netns, *argv], cpus=self.placement.cpus)

    def check(self) -> None:
        """Do nothing: the kernel is always alive."""

    def versions(self) -> dict[str, str]:
        """Return nothing: the host's record has the kernel version."""
        return {}
