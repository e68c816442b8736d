"""A station: a network namespace at the far end of a cable, with an address. It stands in for a guest."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.cable.lay import OFFLOADS_OFF
from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import GuestError, HostError
from ringroad_lab.host.interface import Completed, Host, Process

LISTEN_TIMEOUT_S = 10.0
# What `ethtool -k` has to show as off: nobody merges, cuts or leaves out checksums.
_OFFLOADS = (
    *("tx-checksumming", "tcp-segmentation-offload"),
    *("generic-segmentation-offload", "generic-receive-offload"),
)


class Station:
    """A namespace with one interface, its offloads off."""

    def __init__(self, host: Host, name: str, cpus: frozenset[int]) -> None:
        """Name it, uniquely in the run, and say where its programs run."""
        self._host = host
        self._cpus = cpus
        self.name = name
        self.address = ""
        self._netns = f"{host.folder.name}-{name}"
        self._interface: str | None = None
        self._is_made = False

    def start(self, cable: Cable, address: str) -> None:
        """Plug it in.

        Args:
            cable: A veth pair.
            address: IPv4, with the bits of its network.

        Raises:
            GuestError: it could not be made, or an offload cannot be switched off.
        """
        if cable.kind is not CableKind.VETH:
            raise GuestError(f"station {self.name} does not carry {cable.kind.value} ({cable.name}): stations are plugged in by veth")
        interface = cable.far_end
        try:
            self._host.run(["ip", "netns", "add", self._netns])
            self._is_made = True
            self._host.run(["ip", "link", "set", "dev", interface, "netns", self._netns])
            self._interface = interface
            self.run(["ethtool", "-K", interface, *OFFLOADS_OFF], check=False)
            self.run(["ip", "address", "add", address, "dev", interface])
            self.run(["ip", "link", "set", "dev", interface, "up"])
            self.run(["ip", "link", "set", "dev", "lo", "up"])
            told = self.run(["ethtool", "-k", interface]).stdout
        except HostError as error:
            raise GuestError(f"station {self.name}: {error}") from error
        still_on = [name for name in _OFFLOADS if not re.search(rf"^{name}: off", told, re.MULTILINE)]
        if still_on:
            raise GuestError(f"station {self.name}: {', '.join(still_on)} cannot be switched off")
        self.address = address.partition("/")[0]

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0, check: bool = True) -> Completed:
        """Run a command in it to its end.

        Raises:
            HostError: as of any host.
        """
        bound = ["taskset", "--cpu-list", ",".join(map(str, sorted(self._cpus)))] if self._cpus else []
        return self._host.run(["ip", "netns", "exec", self._netns, *bound, *argv], timeout_s=timeout_s, check=check)

    def serve(self, name: str, argv: Sequence[str], protocol: str, port: int) -> Process:
        """Start a program in it, and wait until it listens.

        Args:
            name: For people.
            argv: The program and its arguments.
            protocol: `tcp` or `udp`.
            port: Where it is going to listen.

        Raises:
            GuestError: it does not.
            HostError: as of any host.
        """
        process = self._host.start(name, ["ip", "netns", "exec", self._netns, *argv], cpus=self._cpus)
        query = ["ss", "--no-header", "--listening", "--numeric", f"--{protocol}", f"sport = :{port}"]
        if not wait_until(lambda: bool(self.run(query).stdout) or not process.is_running(), LISTEN_TIMEOUT_S) or not process.is_running():
            process.stop()
            raise GuestError(f"{name} does not listen at {protocol} port {port} of station {self.name}\n{process.output()[-2000:]}")
        return process

    def stop(self) -> None:
        """Give the interface back, and remove the namespace; possible any number of times."""
        if not self._is_made:
            return
        if self._interface is not None:
            # $$ is a process in the host's own namespace.
            move = 'ip -n "$1" link set "$2" netns $$'
            self._host.run(["sh", "-c", move, "sh", self._netns, self._interface], check=False)
        self._host.run(["ip", "netns", "delete", self._netns], check=False)
        self._interface, self._is_made = None, False
