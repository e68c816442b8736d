"""Cables that are a UNIX socket. The server end creates the socket; for most, its path is chosen here."""

from __future__ import annotations

from typing import ClassVar

from ringroad_lab.cable.interface import Cable, CableType, Laying
from ringroad_lab.host.interface import Host


class SocketCable(CableType):
    """One path for both ends."""

    shares_memory: ClassVar[bool] = True
    can_loop: ClassVar[bool] = True

    def lay(self, laying: Laying) -> Cable:
        """Choose the path."""
        path = str(laying.host.folder / f"{laying.name}.sock")
        return Cable(laying.kind, laying.name, path, path, is_dut_server=laying.is_dut_server, queues=laying.queues)

    def remove(self, cable: Cable, host: Host) -> None:
        """Remove the socket: a killed server leaves it behind, and the next server could not use the path."""
        host.run(["rm", "-f", cable.dut_end])


class VhostUserCable(SocketCable):
    """The device is the back end, the other end a virtio network card."""

    title: ClassVar[str] = "a socket: the device is the back end, the other end a virtio network card"

    def generator_location(self, cable: Cable) -> str:
        """Name a virtio network card."""
        return f"virtio-user:{cable.far_end}@role={_far_role(cable)},queues={cable.queues}"

    def loop_location(self, cable: Cable) -> str:
        """Name a back end."""
        return f"vhost-user:{cable.dut_end}"


class MemifCable(SocketCable):
    """The server may be at either end."""

    title: ClassVar[str] = "a socket: shared memory packet interface"

    def generator_location(self, cable: Cable) -> str:
        """Name the other side of the interface."""
        return f"memif:{cable.far_end}@role={_far_role(cable)},id=0,queues={cable.queues}"

    def loop_location(self, cable: Cable) -> str:
        """Name the server's side."""
        return f"memif:{cable.dut_end}@role=server,id=0"


class NetmapCable(CableType):
    """A port of the device's switch, which a netmap program opens at the device's socket. The device chooses both."""

    title: ClassVar[str] = "a port of a switch for netmap programs; QEMU opens it"
    shares_memory: ClassVar[bool] = True
    reaches_generator: ClassVar[bool] = False

    def lay(self, laying: Laying) -> Cable:
        """Lay nothing: after `configure`, `Dut.plugged_in` returns the ends."""
        return Cable(laying.kind, laying.name, "", "", queues=laying.queues)


def _far_role(cable: Cable) -> str:
    return "client" if cable.is_dut_server else "server"
