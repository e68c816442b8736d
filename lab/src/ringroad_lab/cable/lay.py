"""Laying cables and taking them away."""

from __future__ import annotations

from pathlib import PurePosixPath

from ringroad_lab.cable.interface import MEMORY_CABLES, Cable, CableKind
from ringroad_lab.errors import HostError, SandboxError
from ringroad_lab.frame_size import FCS_BYTES
from ringroad_lab.host.interface import Host

ETHERNET_HEADER_BYTES = 14
USUAL_MTU_BYTES = 1500
NAME_LIMIT = 8
# What the kernel would otherwise do to frames on their way, or merge them into.
OFFLOADS_OFF = ("tx", "off", "rx", "off", "tso", "off", "gso", "off", "gro", "off")


def lay_cable(
    kind: CableKind,
    name: str,
    host: Host,
    *,
    is_dut_server: bool = True,
    queues: int = 1,
    max_frame_bytes: int = 1518,
    nics: tuple[str, str] | None = None,
    far_host: Host | None = None,
) -> Cable:
    """Lay a cable on the device's host.

    Args:
        kind: What it is made of.
        name: Unique in the run, at most 8 characters.
        host: Where the device under test is.
        is_dut_server: Of sockets: whether the device makes the socket. It does so itself; here only the path is chosen.
        queues: Queue pairs.
        max_frame_bytes: The longest frame that has to pass, FCS included.
        nics: Of network cards: the interface at the device's end and the one at the far end.
        far_host: Of network cards: where the far end is, if that is another machine.

    Raises:
        SandboxError: an interface could not be made or set.
        MissingProgramError: a program for it is not there.
    """
    if not 1 <= len(name) <= NAME_LIMIT:
        raise ValueError(f"name of a cable {name!r}: 1 to {NAME_LIMIT} characters")
    if kind in MEMORY_CABLES:
        path = str(host.folder / f"{name}.sock")
        return Cable(kind, name, path, path, is_dut_server=is_dut_server, queues=queues)
    host.require("ip", "iproute2")
    host.require("ethtool", "ethtool")
    try:
        if kind is CableKind.NIC:
            if nics is None:
                raise ValueError(f"cable {name}: a cable between network cards needs their two interfaces")
            dut_end, far_end = nics
        else:
            dut_end, far_end = f"{name}-dut", f"{name}-far"
            if kind is CableKind.VETH:
                end = ["numtxqueues", str(queues), "numrxqueues", str(queues)]
                host.run(["ip", "link", "add", far_end, *end, "type", "veth", "peer", "name", dut_end, *end])
            else:
                many = ["multi_queue"] if queues > 1 else []
                host.run(["ip", "tuntap", "add", "dev", dut_end, "mode", "tap", *many])
                far_end = dut_end
        cable = Cable(kind, name, dut_end, far_end, queues=queues)
        try:
            _prepare_interface(host, dut_end, max_frame_bytes)
            if far_end != dut_end:
                _prepare_interface(far_host or host, far_end, max_frame_bytes)
        except HostError:
            remove_cable(cable, host)
            raise
    except HostError as error:
        raise SandboxError(f"cable {name} ({kind}): {error}") from error
    return cable


def remove_cable(cable: Cable, host: Host) -> None:
    """Take away what was made for a cable; possible any number of times, and after the device took its end with it."""
    if cable.kind in (CableKind.VETH, CableKind.TAP):
        # One end takes the other with it.
        host.run(["ip", "link", "delete", cable.far_end], check=False)
    elif cable.kind in MEMORY_CABLES:
        # A server that was killed leaves its socket, and the next one finds the path taken.
        host.run(["rm", "-f", cable.dut_end])


def forbid_ipv6(host: Host, interface: str) -> None:
    """Keep the host's own IPv6 from sending frames of its own there. A kernel without IPv6 sends none."""
    setting = PurePosixPath(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6")
    try:
        host.read_text(setting)
    except HostError:
        return
    host.write_text(setting, "1\n")


def _prepare_interface(host: Host, interface: str, max_frame_bytes: int) -> None:
    forbid_ipv6(host, interface)
    # What a card cannot change stays as it is, and the others are set.
    host.run(["ethtool", "-K", interface, *OFFLOADS_OFF], check=False)
    mtu = max(USUAL_MTU_BYTES, max_frame_bytes - ETHERNET_HEADER_BYTES - FCS_BYTES)
    host.run(["ip", "link", "set", "dev", interface, "mtu", str(mtu), "up"])
