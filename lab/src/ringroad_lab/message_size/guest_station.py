"""A virtual machine as a station: it takes commands over its second serial port."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import ClassVar

from ringroad_lab.cable.interface import Cable
from ringroad_lab.dut.interface import Placement
from ringroad_lab.errors import GuestError, HostError
from ringroad_lab.guest.virtual_machine import VIRTIO_MODULES, VirtualMachine
from ringroad_lab.host.interface import Completed
from ringroad_lab.message_size.command_channel import SERVE_COMMANDS, CommandChannel
from ringroad_lab.message_size.station import Station

# Folder in the guest's memory, like all its files.
FOLDER = PurePosixPath("/tmp")
INTERFACE = "eth0"


class GuestProgram:
    """A program in a guest."""

    def __init__(self, station: GuestStation, pid: str, log: PurePosixPath) -> None:
        """Take the process ID in the guest, and the file with the program's output."""
        self._station = station
        self._pid = pid
        self._log = log

    def is_running(self) -> bool:
        """Return whether the program is running."""
        return self._station.run(["kill", "-0", self._pid], check=False).status == 0

    def output(self) -> str:
        """Return the output so far."""
        return self._station.run(["tail", "-c", "4000", str(self._log)], check=False).stdout

    def stop(self) -> None:
        """Stop the program. It has already ended if the guest has ended; the check of the guest reports that."""
        try:
            self._station.run(["kill", "-KILL", self._pid], check=False)
        except HostError:
            return


class GuestStation(VirtualMachine, Station):
    """A virtual machine with one network card without offloads, and the programs in its memory."""

    title: ClassVar[str] = "QEMU guest"
    folder = FOLDER

    def __init__(self, name: str, placement: Placement) -> None:
        """Take a name that is unique in the run."""
        super().__init__(name, placement)
        self._socket = self._folder / "commands.sock"
        self._channel: CommandChannel | None = None
        self._network = ""
        self._programs: Sequence[str] = ()

    def _modules(self) -> Sequence[str]:
        return VIRTIO_MODULES

    def _files(self) -> Sequence[str]:
        return self._programs

    def _script(self) -> str:
        return f"""\
echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 || true
# NPtcp looks up the number of its protocol.
mkdir -p /etc
printf 'tcp 6 TCP\\nudp 17 UDP\\n' >/etc/protocols
ip address add {self._network} dev {INTERFACE}
ip link set {INTERFACE} up
ip link set lo up
{SERVE_COMMANDS}"""

    def _further_options(self) -> Sequence[str]:
        return ("-chardev", f"socket,id=commands,path={self._socket},server=on,wait=off", "-serial", "chardev:commands")

    def start(self, cable: Cable, address: str, programs: Sequence[str]) -> None:
        """Boot the guest, and wait until it accepts commands."""
        self._network, self._programs = address, programs
        self.boot([cable])
        try:
            self._channel = CommandChannel(self._socket)
            self._switch_offloads_off(INTERFACE)
        except HostError as error:
            # The end of the guest is the reason, if it has ended.
            self.check()
            raise GuestError(f"{self.name}: {error}") from error
        self.address = address.partition("/")[0]

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0, check: bool = True) -> Completed:
        """Run a command in the guest and wait for its end. The output includes standard error."""
        return self._run(shlex.join(argv), tuple(argv), timeout_s, check=check)

    def start_program(self, name: str, argv: Sequence[str]) -> GuestProgram:
        """Start a program in the guest."""
        log = FOLDER / f"{argv[0]}.log"
        script = f"{shlex.join(argv)} >{shlex.quote(str(log))} 2>&1 3>&- & echo $!"
        return GuestProgram(self, self._run(script, tuple(argv), 30.0, check=True).stdout.strip(), log)

    def _run(self, script: str, argv: tuple[str, ...], timeout_s: float, *, check: bool) -> Completed:
        command = f"{self.name}: {shlex.join(argv)}"
        if self._channel is None:
            raise HostError(f"cannot run {command}: the guest was not started")
        status, output = self._channel.run(script, timeout_s)
        if check and status:
            raise HostError(f"{command} ended with status {status}: {output.strip()[-2000:] or 'no output'}")
        return Completed(argv, status, output, "")

    def stop(self) -> None:
        """Stop the guest."""
        if self._channel is not None:
            self._channel.close()
        super().stop()
