"""A network namespace in place of a virtual machine."""

from __future__ import annotations

from typing import ClassVar

from ringroad_lab.cable.interface import CableKind
from ringroad_lab.dut.interface import Placement
from ringroad_lab.guest.interface import Peer


class NamespacePeer(Peer):
    """A namespace that takes interfaces of the host; no program of its own runs in it."""

    carries: ClassVar[frozenset[CableKind]] = frozenset({CableKind.VETH})

    def __init__(self, name: str, placement: Placement) -> None:
        """Set its name, which must be unique in the run."""
        super().__init__(name, placement)
        # Names of namespaces are visible on the whole machine if the run has no private mounts.
        self._netns = f"{placement.host.folder.name}-{name}"
        self._interfaces: tuple[str, ...] = ()
        self._is_made = False

    def prepare(self) -> None:
        """Check for `ip`."""
        self.host.require("ip", "iproute2")

    def _make(self) -> None:
        self.host.run(["ip", "netns", "add", self._netns])
        self._is_made = True

    def _take(self, interface: str) -> None:
        self.host.run(["ip", "link", "set", "dev", interface, "netns", self._netns])
        self._interfaces += (interface,)

    def stop(self) -> None:
        """Return the interfaces, and remove the namespace with what is in it."""
        if not self._is_made:
            return
        for interface in self._interfaces:
            # $$ is a process in the host's own namespace.
            move = 'ip -n "$1" link set "$2" netns $$'
            self.host.run(["sh", "-c", move, "sh", self._netns, interface], check=False)
        self.host.run(["ip", "netns", "delete", self._netns], check=False)
        self._interfaces, self._is_made = (), False
