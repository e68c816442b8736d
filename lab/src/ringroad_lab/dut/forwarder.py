"""A program that forwards between two veth pairs: `ringroad fwd`, or one over netmap or libpcap."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Annotated, ClassVar

from pydantic import Field

from ringroad_lab.build.opened import Programs
from ringroad_lab.cable.interface import CableKind
from ringroad_lab.dut.interface import Dut, DutPort, DutSettings, Placement, Rule
from ringroad_lab.dut.ringroad_daemon import RingroadDaemon
from ringroad_lab.errors import DutError

OWN_PROGRAM = "ringroad"


class ForwarderSettings(DutSettings):
    """Settings of a forwarder."""

    command: Annotated[tuple[str, ...], Field(min_length=1)] = (OWN_PROGRAM, "fwd", "xdp:{a}", "xdp:{b}@share=xdp:{a}")
    """The program and its arguments, in which `{a}` and `{b}` are the two interfaces. `ringroad` is Ringroad's own program; each other one
    finds Ringroad's devices, such as `netmap:{a}` or `xdp:{a}`, by the preloaded libraries of `ringroad run`. With the names of the
    interfaces themselves it uses the system's libpcap."""
    package: str = ""
    """Debian package of the program, for the error if it is missing."""


class Forwarder(Dut):
    """One process between two ports, and the daemon of Ringroad that serves them, on the same processors."""

    title: ClassVar[str] = "Forwarding program"
    settings_type: ClassVar[type[DutSettings]] = ForwarderSettings
    carries: ClassVar[frozenset[CableKind]] = frozenset({CableKind.VETH})
    single_queue: ClassVar[frozenset[CableKind]] = frozenset({CableKind.VETH})
    build_programs: ClassVar[Programs] = {"ringroadd": (), "ringroad": ()}
    settings: ForwarderSettings

    def __init__(self, settings: DutSettings, placement: Placement) -> None:
        """Store validated settings."""
        super().__init__(settings, placement)
        self._daemon = RingroadDaemon(self)
        self._ports: tuple[DutPort, ...] = ()

    def prepare(self) -> None:
        """Check for the program, and for Ringroad's."""
        self._daemon.prepare()
        program = self.settings.command[0]
        self._program = program if program == OWN_PROGRAM else self.host.require(program, self.settings.package or program)

    def start(self) -> None:
        """Start the daemon; the program takes its ports as start arguments."""
        self._daemon.start()

    def configure(self, ports: Sequence[DutPort], rules: Sequence[Rule]) -> None:
        """Start the program with its two ports."""
        if len(ports) != 2:
            raise DutError(f"{self.title}: it joins two ports, not {len(ports)}: use a topology without guests")
        self._ports = tuple(sorted(ports, key=lambda port: port.number))
        a, b = (port.cable.dut_end for port in self._ports)
        arguments = [argument.replace("{a}", a).replace("{b}", b) for argument in self.settings.command[1:]]
        is_own = self._program == OWN_PROGRAM
        command = self._daemon.command(*arguments) if is_own else self._daemon.serve([self._program, *arguments])
        self.launch(PurePosixPath(self._program).name, command)

    def check(self) -> None:
        """Check that the daemon and the program are running."""
        self._daemon.check()
        super().check()

    def collect(self) -> dict[str, int]:
        """Return the daemon's counters of its ports; nothing of a program over the system's libpcap."""
        return self._daemon.collect(self._served())

    def versions(self) -> dict[str, str]:
        """Return the version of Ringroad, and the paths of the programs."""
        return super().versions() | {"Ringroad": self._daemon.version()}

    def port_modes(self) -> dict[str, str]:
        """Return kind and mode of the daemon's ports, and the library of others."""
        system = {str(port.number): f"{port.cable.kind} as the program opens it, without Ringroad" for port in self._ports}
        return system | self._daemon.modes(self._served())

    def environment(self) -> dict[str, str]:
        """Return the socket of the daemon for `ringroad`."""
        return {"RINGROAD_SOCKET": str(self._daemon.socket)}

    def _served(self) -> dict[str, DutPort]:
        """Return the daemon's ports by name: of an interface `v`, it is named `xdp:v` or, over netmap, `v`."""
        by_interface = {port.cable.dut_end: port for port in self._ports}
        found = {name: by_interface.get(name.rpartition(":")[2]) for name in self._daemon.ports()}
        return {name: port for name, port in found.items() if port}
