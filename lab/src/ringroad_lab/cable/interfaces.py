"""Cables between interfaces that the lab creates: veth pairs, TAPs."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import ClassVar

from ringroad_lab.cable.interface import Cable, CableType, Laying
from ringroad_lab.errors import HostError
from ringroad_lab.frame_size import FCS_BYTES
from ringroad_lab.host.interface import Host

ETHERNET_HEADER_BYTES = 14
USUAL_MTU_BYTES = 1500
# Offloads with which the kernel would change, split or merge frames.
OFFLOADS_OFF = ("tx", "off", "rx", "off", "tso", "off", "gso", "off", "gro", "off")


class VethCable(CableType):
    """A veth pair."""

    title: ClassVar[str] = "a veth pair: an interface at each end"

    can_loop: ClassVar[bool] = True

    def lay(self, laying: Laying) -> Cable:
        """Create the pair."""
        require_tools(laying.host)
        # Programs over netmap read what follows a hyphen as the number of a ring.
        dut_end, far_end = f"{laying.name}_dut", f"{laying.name}_far"
        end = ["numtxqueues", str(laying.queues), "numrxqueues", str(laying.queues)]
        laying.host.run(["ip", "link", "add", far_end, *end, "type", "veth", "peer", "name", dut_end, *end])
        return _prepared(self, laying, dut_end, far_end, laying.host)

    def remove(self, cable: Cable, host: Host) -> None:
        """Delete one end, which deletes the other end too."""
        host.run(["ip", "link", "delete", cable.far_end], check=False)

    def generator_location(self, cable: Cable) -> str:
        """Name the interface at the far end."""
        return f"xdp:{cable.far_end}@queues={cable.queues}"

    def loop_location(self, cable: Cable) -> str:
        """Name the interface at the device's end."""
        return f"xdp:{cable.dut_end}"


class TapCable(CableType):
    """A TAP at the device's end; QEMU opens it."""

    title: ClassVar[str] = "a TAP at the device's end, QEMU at the other"

    reaches_generator: ClassVar[bool] = False

    def lay(self, laying: Laying) -> Cable:
        """Create the TAP."""
        require_tools(laying.host)
        dut_end = f"{laying.name}_dut"
        many = ["multi_queue"] if laying.queues > 1 else []
        laying.host.run(["ip", "tuntap", "add", "dev", dut_end, "mode", "tap", *many])
        return _prepared(self, laying, dut_end, dut_end, None)

    def remove(self, cable: Cable, host: Host) -> None:
        """Delete the TAP."""
        host.run(["ip", "link", "delete", cable.far_end], check=False)


def forbid_ipv6(host: Host, interface: str) -> None:
    """Prevent the host's IPv6 stack from sending frames on an interface. A kernel without IPv6 sends none."""
    setting = PurePosixPath(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6")
    try:
        host.read_text(setting)
    except HostError:
        return
    host.write_text(setting, "1\n")


def require_tools(host: Host) -> None:
    """Check for the programs that configure interfaces.

    Raises:
        MissingProgramError: a program is missing.
    """
    host.require("ip", "iproute2")
    host.require("ethtool", "ethtool")


def _prepared(kind: CableType, laying: Laying, dut_end: str, far_end: str, far_host: Host | None) -> Cable:
    """Configure both ends of an existing cable; if that fails, remove the cable."""
    cable = Cable(laying.kind, laying.name, dut_end, far_end, queues=laying.queues)
    try:
        _prepare_interface(laying.host, dut_end, laying.max_frame_bytes)
        if far_host is not None:
            _prepare_interface(far_host, far_end, laying.max_frame_bytes)
    except HostError:
        kind.remove(cable, laying.host)
        raise
    return cable


def _prepare_interface(host: Host, interface: str, max_frame_bytes: int) -> None:
    forbid_ipv6(host, interface)
    # A feature that the interface cannot change stays as it is; the others are set.
    host.run(["ethtool", "-K", interface, *OFFLOADS_OFF], check=False)
    host.run(["ip", "link", "set", "dev", interface, "mtu", str(mtu_bytes(max_frame_bytes)), "up"])


def mtu_bytes(max_frame_bytes: int) -> int:
    """Return the MTU for frames of at most `max_frame_bytes`, FCS included."""
    return max(USUAL_MTU_BYTES, max_frame_bytes - ETHERNET_HEADER_BYTES - FCS_BYTES)
