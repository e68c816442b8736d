"""A Linux bridge in a network namespace, in place of a virtual machine with a Linux bridge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import ClassVar

from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.dut.interface import Placement
from ringroad_lab.dut.linux_bridge import NAMESPACE_SETTINGS
from ringroad_lab.errors import GuestError, HostError
from ringroad_lab.guest.interface import Guest
from ringroad_lab.host.interface import Process
from ringroad_lab.record import LogExcerpt

BRIDGE = "br0"


class NamespaceBridgeGuest(Guest):
    """Bridges its two cables. The kernel forwards each frame on the processor that delivers the frame."""

    carries: ClassVar[frozenset[CableKind]] = frozenset({CableKind.VETH})
    is_stand_in: ClassVar[bool] = True

    def __init__(self, name: str, placement: Placement) -> None:
        """Set its name, which must be unique in the run."""
        super().__init__(name, placement)
        self._host = placement.host
        # Names of namespaces are visible on the whole machine if the run has no private mounts.
        self._netns = f"{placement.host.folder.name}-{name}"
        self._interfaces: tuple[str, ...] = ()
        self._is_made = False

    def prepare(self) -> None:
        """Check for `ip`."""
        self._host.require("ip", "iproute2")

    def start(self, cables: tuple[Cable, Cable]) -> None:
        """Create the namespace and the bridge, and plug both cables in."""
        for cable in cables:
            if cable.kind is not CableKind.VETH:
                raise GuestError(f"a bridge in a namespace does not carry {cable.kind} ({cable.name})")
        try:
            self._host.run(["ip", "netns", "add", self._netns])
            self._is_made = True
            self._inside("sh", "-c", NAMESPACE_SETTINGS)
            self._ip("link", "add", BRIDGE, "type", "bridge", "stp_state", "0", "forward_delay", "0", "mcast_snooping", "0")
            for cable in cables:
                self._host.run(["ip", "link", "set", cable.far_end, "netns", self._netns])
                self._interfaces += (cable.far_end,)
                self._ip("link", "set", cable.far_end, "master", BRIDGE, "up")
            self._ip("link", "set", BRIDGE, "up")
        except HostError as error:
            raise GuestError(f"guest {self.name} (Linux bridge): {error}") from error

    def _ip(self, *arguments: str) -> None:
        self._host.run(["ip", "-n", self._netns, *arguments])

    def _inside(self, *command: str, check: bool = True) -> bool:
        return self._host.run(["ip", "netns", "exec", self._netns, *command], check=check).status == 0

    def check(self) -> None:
        """Check that the bridge exists and has both cables."""
        for interface in self._interfaces:
            if not self._inside("test", "-e", f"/sys/class/net/{BRIDGE}/brif/{interface}", check=False):
                raise GuestError(f"guest {self.name} (Linux bridge): {interface} is no longer in its bridge")

    def processes(self) -> Sequence[Process]:
        """Return nothing: the kernel forwards."""
        return []

    def versions(self) -> dict[str, str]:
        """Return the kernel's version."""
        return {"Linux (guest)": self._host.read_text(PurePosixPath("/proc/sys/kernel/osrelease")).strip()}

    def logs(self) -> Sequence[LogExcerpt]:
        """Return nothing: no program runs."""
        return []

    def stop(self) -> None:
        """Return the interfaces, and remove bridge and namespace."""
        if not self._is_made:
            return
        for interface in self._interfaces:
            # $$ is a process in the host's own namespace.
            move = 'ip -n "$1" link set "$2" netns $$'
            self._host.run(["sh", "-c", move, "sh", self._netns, interface], check=False)
        self._host.run(["ip", "netns", "delete", self._netns], check=False)
        self._interfaces, self._is_made = (), False
