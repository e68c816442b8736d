"""A Linux bridge in a network namespace, in place of a virtual machine with a Linux bridge."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import ClassVar

from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.dut.linux_bridge import NAMESPACE_SETTINGS
from ringroad_lab.errors import GuestError, HostError
from ringroad_lab.guest.interface import Guest
from ringroad_lab.guest.namespace import NamespacePeer

BRIDGE = "br0"


class NamespaceBridgeGuest(NamespacePeer, Guest):
    """Bridges its two cables. The kernel forwards each frame on the processor that delivers the frame."""

    is_stand_in: ClassVar[bool] = True

    def start(self, cables: tuple[Cable, Cable]) -> None:
        """Create the namespace and the bridge, and plug both cables in."""
        for cable in cables:
            if cable.kind is not CableKind.VETH:
                raise GuestError(f"a bridge in a namespace does not carry {cable.kind} ({cable.name})")
        try:
            self._make()
            self._inside("sh", "-c", NAMESPACE_SETTINGS)
            self._ip("link", "add", BRIDGE, "type", "bridge", "stp_state", "0", "forward_delay", "0", "mcast_snooping", "0")
            for cable in cables:
                self._take(cable.far_end)
                self._ip("link", "set", cable.far_end, "master", BRIDGE, "up")
            self._ip("link", "set", BRIDGE, "up")
        except HostError as error:
            raise GuestError(f"guest {self.name} (Linux bridge): {error}") from error

    def _ip(self, *arguments: str) -> None:
        self.host.run(["ip", "-n", self._netns, *arguments])

    def _inside(self, *command: str, check: bool = True) -> bool:
        return self.host.run(["ip", "netns", "exec", self._netns, *command], check=check).status == 0

    def check(self) -> None:
        """Check that the bridge exists and has both cables."""
        for interface in self._interfaces:
            if not self._inside("test", "-e", f"/sys/class/net/{BRIDGE}/brif/{interface}", check=False):
                raise GuestError(f"guest {self.name} (Linux bridge): {interface} is no longer in its bridge")

    def versions(self) -> dict[str, str]:
        """Return the kernel's version."""
        return {"Linux (guest)": self.host.read_text(PurePosixPath("/proc/sys/kernel/osrelease")).strip()}
