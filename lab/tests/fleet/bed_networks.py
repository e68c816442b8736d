"""Machines of beds as network namespaces: a bridge joins them to this machine, and two cables join the machines of a bed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ringroad_lab.deadline import wait_until

SSH_PORT = 2222
CABLES = 2
# /sys shows the interfaces of the network namespace where it was mounted. `ip netns exec` mounts it too, but takes the control groups away,
# which slurmd needs.
_OWN_SYS = 'cd /sys/fs/cgroup && mount -t sysfs sysfs /sys && mount -c --rbind . /sys/fs/cgroup && cd / && exec "$0" "$@"'
_PATIENCE_S = 300.0
# Each test process uses a part of this network, which RFC 2544 reserves for tests of devices.
_NETWORK = "198.18"


@dataclass(frozen=True)
class Machine:
    """A machine of a bed."""

    namespace: str
    address: str

    @property
    def inside(self) -> tuple[str, ...]:
        """The command prefix that starts a program in the machine."""
        own_mounts = ("unshare", "--mount", "--propagation", "slave", "--", "sh", "-c", _OWN_SYS)
        return ("nsenter", f"--net=/run/netns/{self.namespace}", "--", *own_mounts)


class BedNetworks:
    """Networks of beds with a generator and a device each; a context manager. The ends of the cables are named near1, far1, ..."""

    def __init__(self, beds: Sequence[str]) -> None:
        """Take the names of the beds."""
        unique = f"{os.getpid():x}"
        there = subprocess.run(["ip", "-oneline", "-4", "address"], check=True, capture_output=True, text=True).stdout
        parts = (f"{_NETWORK}.{(os.getpid() + number) % 256}" for number in range(256))
        part = next(part for part in parts if f" {part}." not in there)
        self.address = f"{part}.1"
        """Address of this machine in the networks."""
        self._bridge = f"rrlab-{unique}"
        self._beds = beds
        roles = [f"{bed}{number}" for bed in beds for number in (1, 2)]
        self.machines = {name: Machine(f"rrlab-{unique}-{name}", f"{part}.{number}") for number, name in enumerate(roles, 10)}
        """By name, such as a1 and a2: bed and number; number 1 is the generator."""
        self._servers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> BedNetworks:
        """Make the networks."""
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the networks."""
        self.close()

    def close(self) -> None:
        for server in self._servers:
            server.kill()
            server.wait()
        # The kernel removes the interfaces of a namespace later, and the next networks of this process have the same names.
        ports = [f"link delete {self._bridge}.{number}" for number in range(len(self.machines))]
        namespaces = [f"netns delete {machine.namespace}" for machine in self.machines.values()]
        for removal in (*ports, *namespaces, f"link delete {self._bridge}"):
            with suppress(subprocess.CalledProcessError):
                _ip(removal)

    def start_sshd(self, name: str, folder: Path) -> None:
        """Start sshd on a machine; make a folder with the login key `user` and the machine's key in `known`."""
        machine = self.machines[name]
        folder.mkdir()
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
        (folder / "authorized").write_text((folder / "user.pub").read_text())
        (folder / "known").write_text(f"[{machine.address}]:{SSH_PORT} {(folder / 'host.pub').read_text()}")
        (folder / "config").write_text(
            f"ListenAddress {machine.address}\nPort {SSH_PORT}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
            "StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nPasswordAuthentication no\n"
            # A sign of a nested shell to bash, which then skips the user's start file: that would take longer than everything else here.
            "SetEnv SHLVL=2\n"
        )
        # Where sshd confines itself before a user has logged in.
        Path("/run/sshd").mkdir(parents=True, exist_ok=True)
        argv = [*machine.inside, "/usr/sbin/sshd", "-D", "-f", str(folder / "config")]
        nothing = subprocess.DEVNULL
        self._servers.append(subprocess.Popen(argv, stdin=nothing, stdout=nothing, stderr=nothing))
        query = [*machine.inside, "ss", "--no-header", "-ltn", f"sport = :{SSH_PORT}"]
        assert wait_until(lambda: bool(subprocess.run(query, capture_output=True, check=True).stdout), _PATIENCE_S)

    def _make(self) -> None:
        _ip(f"link add {self._bridge} type bridge")
        _ip(f"address add {self.address}/24 dev {self._bridge}")
        _ip(f"link set {self._bridge} up")
        for number, machine in enumerate(self.machines.values()):
            port, name = f"{self._bridge}.{number}", machine.namespace
            _ip(f"netns add {name}")
            _ip(f"link add {port} type veth peer name net0 netns {name}")
            _ip(f"link set {port} master {self._bridge} up")
            _ip(f"-n {name} link set lo up")
            _ip(f"-n {name} address add {machine.address}/24 dev net0")
            _ip(f"-n {name} link set net0 up")
        for bed in self._beds:
            generator, dut = (self.machines[f"{bed}{number}"].namespace for number in (1, 2))
            for cable in range(1, CABLES + 1):
                _ip(f"-n {generator} link add near{cable} type veth peer name far{cable} netns {dut}")
                _ip(f"-n {generator} link set near{cable} up")
                _ip(f"-n {dut} link set far{cable} up")


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True, capture_output=True)
