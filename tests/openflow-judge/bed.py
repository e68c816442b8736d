"""The test bed: Open vSwitch as the tester's switch, a switch that is judged, and three links between them.

All of it lies in the network and process namespaces of the caller, who ends it by ending them.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

LINKS = (1, 2, 3)
"""Links between the two switches, and the numbers of the ports at their ends."""
CONTROLLER_PORT = 6653
_CONTROLLER = f"tcp:127.0.0.1:{CONTROLLER_PORT}"
# Not the one over DPDK, which may be the system's choice.
_VSWITCHD = "/usr/lib/openvswitch-switch/ovs-vswitchd"
# Of the system calls in kernel and C library, Python does not have this one. The numbers are of 64-bit machines.
_SYS_PIDFD_GETFD, _SO_RCVBUFFORCE = 438, 33
# Two seconds of the fastest case.
_BUFFER_BYTES = 64 << 20
_OFFLOADS = ("tx", "rx", "tso", "gso", "gro", "txvlan", "rxvlan")


# Names of the two switches.
TARGET, TESTER = "target", "tester"
NUMBERS = {TARGET: 1, TESTER: 2}
"""Datapath ids of the switches."""


def interface(switch: str, link: int) -> str:
    """Return the end of a link at a switch."""
    return f"{switch}{link}"


def _run(*command: str | Path, env: dict[str, str] | None = None) -> None:
    """Run a command, or exit with its output."""
    with tempfile.TemporaryFile() as output:
        # Not a pipe: what it leaves in the background would keep that open.
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **(env or {})}
        )
        if done.returncode:
            output.seek(0)
            raise SystemExit(f"{' '.join(map(str, command))}: {output.read().decode().strip()}")


def _enlarge_packet_buffers(pid: int) -> None:
    """Let a process wait for a processor without losing packets: enlarge the buffers of its packet sockets.

    Open vSwitch has no setting for that. Its sockets hold a hundred packets.
    """
    inodes = {line.split()[8] for line in Path("/proc/net/packet").read_text().splitlines()[1:]}
    process = os.pidfd_open(pid)
    c_library = ctypes.CDLL(None, use_errno=True)
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        if os.readlink(entry).removeprefix("socket:[").rstrip("]") in inodes:
            descriptor = c_library.syscall(_SYS_PIDFD_GETFD, process, int(entry.name), 0)
            if descriptor < 0:
                raise OSError(ctypes.get_errno(), "the packet sockets of ovs-vswitchd")
            with socket.socket(fileno=descriptor) as packets:
                packets.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    os.close(process)


def make_links() -> None:
    """Make the links: veth pairs on which nothing but the tests' packets is sent, whole and with their checksums."""
    _run("ip", "link", "set", "lo", "up")
    for which in ("all", "default"):
        Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6").write_text("1")
    off = [word for offload in _OFFLOADS for word in (offload, "off")]
    for link in LINKS:
        ends = (interface(TESTER, link), interface(TARGET, link))
        _run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for end in ends:
            _run("ethtool", "-K", end, *off)
            _run("ip", "link", "set", end, "up")


class OpenVSwitch:
    """An Open vSwitch of its own, with packets in its process (userspace datapath)."""

    def __init__(self, folder: Path) -> None:
        """Start it, with all its files in `folder`."""
        folder.mkdir()
        variables = ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR")
        self._env = dict.fromkeys(variables, str(folder))
        self._database = f"unix:{folder / 'db.sock'}"
        self.control_socket = folder / "vswitchd.ctl"
        """Where `ovs-appctl` reaches ovs-vswitchd."""
        schema, contents = "/usr/share/openvswitch/vswitch.ovsschema", folder / "conf.db"
        self._start("ovsdb-tool", "create", contents, schema)
        self._start("ovsdb-server", contents, f"--remote=p{self._database}", *self._daemon_options(folder, "ovsdb"))
        self._set("--no-wait", "init")
        self._start(_VSWITCHD, self._database, *self._daemon_options(folder, "vswitchd"))
        # Maximum milliseconds between two checks of the cached flows: the tester waits for such a check.
        self._set("set", "Open_vSwitch", ".", "other_config:max-revalidator=100")
        self._process = int((folder / "vswitchd.pid").read_text())

    def add_switch(self, name: str) -> Callable[[], None]:
        """Make a switch on its ends of the links. Return what connects it to the tester, which listens then."""
        bridge = ["datapath_type=netdev", "protocols=OpenFlow13", "fail_mode=secure"]
        bridge += [f"other-config:datapath-id={NUMBERS[name]:016x}", "other-config:disable-in-band=true"]
        self._set("add-br", name, "--", "set", "bridge", name, *bridge)
        for link in LINKS:
            end = interface(name, link)
            self._set("add-port", name, end, "--", "set", "interface", end, f"ofport_request={link}")
        _enlarge_packet_buffers(self._process)
        return partial(self._set, "set-controller", name, _CONTROLLER)

    @staticmethod
    def _daemon_options(folder: Path, name: str) -> list[str]:
        names = {"unixctl": "ctl", "pidfile": "pid", "log-file": "log"}
        return ["--detach", *(f"--{option}={folder / name}.{suffix}" for option, suffix in names.items())]

    def _start(self, *command: str | Path) -> None:
        _run(*command, "-vconsole:off", "-vsyslog:off", env=self._env)

    def _set(self, *arguments: str) -> None:
        _run("ovs-vsctl", f"--db={self._database}", *arguments, env=self._env)


def start_ringroad(binaries: Path, folder: Path) -> Callable[[], None]:
    """Start a daemon with the switch that is judged. Return what connects that to the tester, which listens then."""
    folder.mkdir()
    (folder / "config.toml").touch()
    files = ("--socket", folder / "r.sock", "--config", folder / "config.toml", "--log-file", folder / "log")
    _run(binaries / "ringroadd", "--background", *files)
    command = (binaries / "ringroad", "--quiet", "--socket", folder / "r.sock")
    # The order gives the ports their numbers.
    for link in LINKS:
        _run(*command, "attach", f"vale0:{interface(TARGET, link)}")
    return partial(_run, *command, "switch", "vale0", "--openflow", _CONTROLLER, "--datapath-id", str(NUMBERS[TARGET]))
