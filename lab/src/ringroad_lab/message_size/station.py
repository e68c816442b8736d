"""The lab's interface to a station: a machine at the far end of a cable that has an address and runs programs."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import ClassVar, Protocol

from ringroad_lab.cable.interface import Cable
from ringroad_lab.cable.interfaces import OFFLOADS_OFF
from ringroad_lab.deadline import wait_until
from ringroad_lab.dut.interface import Placement
from ringroad_lab.errors import GuestError, HostError
from ringroad_lab.guest.interface import Peer
from ringroad_lab.host.interface import Completed

# An emulated guest on a busy machine is slow.
LISTEN_TIMEOUT_S = 30.0
# Offloads that `ethtool -k` must show as off: no merged or segmented frames, no missing checksums.
_OFFLOADS = (
    *("tx-checksumming", "tcp-segmentation-offload"),
    *("generic-segmentation-offload", "generic-receive-offload"),
)
# States of sockets in /proc/net (include/net/tcp_states.h): a TCP socket that listens, a UDP socket without a peer.
_STATES = {"tcp": "0A", "udp": "07"}


class StationProgram(Protocol):
    """A program that a station runs."""

    def is_running(self) -> bool:
        """Return whether the program is running."""

    def output(self) -> str:
        """Return the output so far."""

    def stop(self) -> object:
        """Stop the program."""


class Station(Peer):
    """One of the two stations that exchange messages."""

    title: ClassVar[str]
    """Kind of station, for users."""
    folder: PurePosixPath
    """Folder in which its programs can write."""

    def __init__(self, name: str, placement: Placement) -> None:
        """Take a name that is unique in the run."""
        super().__init__(name, placement)
        self.address = ""

    @abstractmethod
    def start(self, cable: Cable, address: str, programs: Sequence[str]) -> None:
        """Connect the station, and wait until it accepts commands.

        Args:
            cable: A cable of a kind that the station carries.
            address: IPv4 address with prefix length.
            programs: Paths of the host's programs that the station will run.

        Raises:
            GuestError: the station could not be created, or has offloads.
        """

    @abstractmethod
    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0, check: bool = True) -> Completed:
        """Run a command in the station and wait for its end.

        Raises:
            HostError: as for any host.
        """

    @abstractmethod
    def start_program(self, name: str, argv: Sequence[str]) -> StationProgram:
        """Start a program in the station.

        Raises:
            HostError: as for any host.
        """

    def serve(self, name: str, argv: Sequence[str], protocol: str, port: int) -> StationProgram:
        """Start a program in the station, and wait until it listens.

        Args:
            name: Name for users.
            argv: The program and its arguments.
            protocol: `tcp` or `udp`.
            port: Port on which the program will listen.

        Raises:
            GuestError: the program does not listen.
            HostError: as for any host.
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
        """Switch off the offloads of an interface, so that frames are sent and received unchanged.

        Raises:
            GuestError: an offload cannot be switched off.
            HostError: as for any host.
        """
        self.run(["ethtool", "-K", interface, *OFFLOADS_OFF], check=False)
        features = self.run(["ethtool", "-k", interface]).stdout
        still_on = [name for name in _OFFLOADS if not re.search(rf"^{name}: off", features, re.MULTILINE)]
        if still_on:
            raise GuestError(f"{self.name}: {', '.join(still_on)} cannot be switched off")

    def _listens(self, protocol: str, port: int) -> bool:
        sockets = [line.split() for line in self.run(["cat", f"/proc/net/{protocol}"]).stdout.splitlines()]
        return any(fields[1].endswith(f":{port:04X}") and fields[3] == _STATES[protocol] for fields in sockets if len(fields) > 3)
