"""DPDK's testpmd in place of a virtual machine: to the switch its virtio-user card looks like a guest's card."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

from ringroad_lab.build.opened import Programs
from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.dut.interface import Placement
from ringroad_lab.errors import GuestError, HostError
from ringroad_lab.guest.interface import Guest
from ringroad_lab.host.interface import Host

MEMORY_MIB = 256
RING_DESCRIPTORS = 1024
START_LIMIT_S = 30.0


@dataclass(frozen=True)
class Forwarding:
    """How a guest's testpmd forwards."""

    mode: Literal["io", "macswap", "csum"]
    burst_frames: int = 32
    """Most frames that it takes from a queue at once; 32 is testpmd's default."""

    def options(self, queues: int, processors: int) -> list[str]:
        """Return testpmd's options for cards with some queue pairs, and the number of processors that forward."""
        return [
            f"--forward-mode={self.mode}",
            f"--burst={self.burst_frames}",
            f"--nb-cores={min(processors, 2 * queues)}",
            f"--rxq={queues}",
            f"--txq={queues}",
        ]

    @property
    def started(self) -> str:
        """Text that testpmd prints when it begins to forward between two cards."""
        return f"{self.mode} packet forwarding - ports=2"


IO = Forwarding("io")
CSUM = Forwarding("csum", 64)
"""Computes the checksums anew and sets its own addresses, with the bursts of the thesis on testing Open vSwitch (6.2.1)."""


class TestpmdGuest(Guest):
    """Forwards each frame unchanged to the other card (`io`)."""

    carries: ClassVar[frozenset[CableKind]] = frozenset({CableKind.VHOST_USER, CableKind.VETH})
    single_queue: ClassVar[frozenset[CableKind]] = frozenset({CableKind.VETH})
    is_stand_in: ClassVar[bool] = True
    huge_pages_mib: ClassVar[int] = MEMORY_MIB
    build_programs: ClassVar[Programs] = {"dpdk-testpmd": ()}
    program: ClassVar[str] = "testpmd"
    forwarding: ClassVar[Forwarding] = IO

    def __init__(self, name: str, placement: Placement) -> None:
        """Set its name, which must be unique in the run."""
        super().__init__(name, placement)
        if not placement.cpus:
            raise GuestError(f"guest {name}: no processor is reserved for it")
        self._prefix = f"{name}-{placement.host.folder.name[-8:]}"
        # Folder of DPDK's sockets.
        self._env = {"RUNTIME_DIRECTORY": str(placement.host.folder)}

    def prepare(self) -> None:
        """Check for testpmd."""
        self._program = self.host.require("dpdk-testpmd", "dpdk-dev")
        self.host.require("stdbuf", "coreutils")

    def start(self, cables: tuple[Cable, Cable]) -> None:
        """Start testpmd, and wait until it forwards."""
        try:
            self._process = self.host.start(self.name, self._command(cables), env=self._env, cpus=self.placement.cpus)
        except HostError as error:
            raise GuestError(f"guest {self.name}: {error}") from error
        if why := self._process.why_silent(self.forwarding.started, START_LIMIT_S):
            raise GuestError(f"guest {self.name} (testpmd) {why}")

    def _command(self, cables: tuple[Cable, Cable]) -> list[str]:
        cpus = sorted(self.placement.cpus)
        queues = self.placement.queues
        # The main thread sleeps while the others forward: it can share their first processor.
        lcores = ",".join(["0@" + str(cpus[0]), *(f"{number}@{cpu}" for number, cpu in enumerate(cpus, start=1))])
        # DPDK refuses both at once. The switch maps few regions, so memory must be in few segments.
        memory = ["--in-memory", "--single-file-segments"] if self.placement.huge_pages else ["--no-huge"]
        return [
            # Standard output is not a terminal: without this it would be buffered.
            "stdbuf",
            "-oL",
            self._program,
            f"--lcores={lcores}",
            "--no-pci",
            *memory,
            f"-m{MEMORY_MIB}",
            f"--file-prefix={self._prefix}",
            *(_virtual_device(number, cable) for number, cable in enumerate(cables)),
            "--",
            *self.forwarding.options(queues, len(cpus)),
            f"--rxd={RING_DESCRIPTORS}",
            f"--txd={RING_DESCRIPTORS}",
            "--total-num-mbufs=16384",
            "--no-mlockall",
            "--auto-start",
            # A period makes testpmd run until a signal stops it; without one it runs until the end of its standard input, which is empty.
            "--stats-period=60",
        ]

    def versions(self) -> dict[str, str]:
        """Return the version of DPDK."""
        return dpdk_version(self.host, self._program)

    def stop(self) -> None:
        """Stop testpmd."""
        if self._process is not None:
            self._process.stop()
            self.host.run(["rm", "-rf", str(self.host.folder / "dpdk" / self._prefix)], check=False)


class TestpmdMacswapGuest(TestpmdGuest):
    """Forwards each frame to the other card with its addresses swapped (`macswap`)."""

    forwarding: ClassVar[Forwarding] = Forwarding("macswap")


class TestpmdCsumGuest(TestpmdGuest):
    """Forwards each frame to the other card with new checksums (`csum`)."""

    forwarding: ClassVar[Forwarding] = CSUM


def dpdk_version(host: Host, program: str) -> dict[str, str]:
    """Return the version of DPDK that a guest's testpmd has; empty if it is unknown."""
    completed = host.run([program, "-v"], env={"RUNTIME_DIRECTORY": str(host.folder)}, check=False)
    match = re.search(r"RTE Version: 'DPDK ([^']+)'", completed.stdout + completed.stderr)
    return {"DPDK (guest)": match[1]} if match else {}


def _virtual_device(number: int, cable: Cable) -> str:
    if cable.kind is CableKind.VHOST_USER:
        server = "" if cable.is_dut_server else ",server=1"
        return f"--vdev=net_virtio_user{number},path={cable.far_end},queues={cable.queues},queue_size={RING_DESCRIPTORS}{server}"
    if cable.kind is CableKind.VETH:
        if cable.queues > 1:
            # net_af_xdp counts combined channels; veth has separate ones.
            raise GuestError(f"DPDK's net_af_xdp has one queue on veth ({cable.name}), not {cable.queues}: use vhost-user, or one queue")
        return f"--vdev=net_af_xdp{number},iface={cable.far_end}"
    raise GuestError(f"testpmd as a guest does not carry {cable.kind} ({cable.name})")
