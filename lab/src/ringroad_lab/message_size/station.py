"""The lab's interface to a station: what is at the far end of a cable, with an address, and runs programs."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Protocol

from ringroad_lab.cable.interface import Cable
from ringroad_lab.cable.interfaces import OFFLOADS_OFF
from ringroad_lab.deadline import wait_until
from ringroad_lab.dut.interface import Placement
from ringroad_lab.errors import GuestError, HostError
from ringroad_lab.guest.interface import Machine
from ringroad_lab.host.interface import Completed

# An emulated guest on a busy machine takes its time.
LISTEN_TIMEOUT_S = 30.0
# What `ethtool -k` has to show as off: nobody merges, cuts or leaves out checksums.
_OFFLOADS = (
    *("tx-checksumming", "tcp-segmentation-offload"),
    *("generic-segmentation-offload", "generic-receive-offload"),
)
# States of sockets in /proc/net (include/net/tcp_states.h): of TCP one that listens, of UDP one without a peer.
_STATES = {"tcp": "0A", "udp": "07"}


class Program(Protocol):
    """A program that a station runs."""

    def is_running(self) -> bool:
        """Whether it lives."""

    def output(self) -> str:
        """Return what it said so far."""

    def stop(self) -> object:
        """End it."""


class Station(Machine):
    """One of two, between which messages bounce."""

    def __init__(self, name: str, placement: Placement) -> None:
        """Name it, uniquely in the run."""
        super().__init__(name, placement)
        self.address = ""

    @property
    @abstractmethod
    def folder(self) -> PurePosixPath:
        """Where its programs may write."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What it is, for people."""

    @abstractmethod
    def start(self, cable: Cable, address: str, programs: Sequence[str]) -> None:
        """Plug it in, and wait until it takes commands.

        Args:
            cable: Of a kind that it carries.
            address: IPv4, with the bits of its network.
            programs: Paths of those of the host that it will run.

        Raises:
            GuestError: it could not be made, or has offloads.
        """

    @abstractmethod
    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0, check: bool = True) -> Completed:
        """Run a command in it to its end.

        Raises:
            HostError: as of any host.
        """

    @abstractmethod
    def start_program(self, name: str, argv: Sequence[str]) -> Program:
        """Start a program in it.

        Raises:
            HostError: as of any host.
        """

    def serve(self, name: str, argv: Sequence[str], protocol: str, port: int) -> Program:
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
        program = self.start_program(name, argv)
        try:
            wait_until(lambda: self._listens(protocol, port) or not program.is_running(), LISTEN_TIMEOUT_S)
            if not (self._listens(protocol, port) and program.is_running()):
                raise GuestError(f"{name} does not listen at {protocol} port {port} of {self.name}\n{program.output()[-2000:]}")
        except (GuestError, HostError):
            program.stop()
            raise
        return program

    def _switch_offloads_off(self, interface: str) -> None:
        """Have its frames sent and received as they are.

        Raises:
            GuestError: an offload cannot be switched off.
            HostError: as of any host.
        """
        self.run(["ethtool", "-K", interface, *OFFLOADS_OFF], check=False)
        told = self.run(["ethtool", "-k", interface]).stdout
        still_on = [name for name in _OFFLOADS if not re.search(rf"^{name}: off", told, re.MULTILINE)]
        if still_on:
            raise GuestError(f"{self.name}: {', '.join(still_on)} cannot be switched off")

    def _listens(self, protocol: str, port: int) -> bool:
        sockets = [line.split() for line in self.run(["cat", f"/proc/net/{protocol}"]).stdout.splitlines()]
        return any(fields[1].endswith(f":{port:04X}") and fields[3] == _STATES[protocol] for fields in sockets if len(fields) > 3)
