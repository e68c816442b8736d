"""Virtual machines: QEMU with Debian's kernel and an initramfs. Nothing is installed, and nothing remains afterwards."""

from __future__ import annotations

import json
import re
import zlib
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import ClassVar

from ringroad_lab.build.opened import Programs
from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.dut.interface import Placement
from ringroad_lab.errors import GuestError, HostError
from ringroad_lab.guest.initramfs import READY, build_initramfs
from ringroad_lab.guest.interface import Peer
from ringroad_lab.host.interface import Process
from ringroad_lab.ringroad_program import require_ringroad

QEMU = "qemu-system-x86_64"
BOOT_LIMIT_S = 120.0
VIRTIO_MODULES = (
    *("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci"),
    *("failover", "net_failover", "virtio_net"),
)
# The guest must receive frames as the device under test sends them: no merging, no completed checksums.
OFFLOADS_OFF = (
    "csum=off,gso=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off,"
    "guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off"
)


class VirtualMachine(Peer):
    """QEMU with a virtio-net card for each cable."""

    carries: ClassVar[frozenset[CableKind]] = frozenset({CableKind.VHOST_USER, CableKind.TAP, CableKind.NETMAP})
    build_programs: ClassVar[Programs] = {QEMU: ()}
    program: ClassVar[str] = "QEMU"
    boots_kernel: ClassVar[bool] = True
    # Time of booting with an emulated processor.
    start_s: ClassVar[float] = 20.0
    memory_mib: ClassVar[int] = 256
    kernel_arguments: ClassVar[str] = ""
    takes_queues: ClassVar[bool] = False
    """Whether its program uses several queue pairs of a vhost-user card."""
    ready_text: ClassVar[str] = READY
    """Text on the console when the machine is up."""

    def __init__(self, name: str, placement: Placement) -> None:
        """Set its name, which must be unique in the run."""
        super().__init__(name, placement)
        if placement.queues > 1 and not self.takes_queues:
            raise GuestError(f"guest {name}: its cards have one queue pair; use guest qemu-testpmd for {placement.queues}")
        self._folder: PurePosixPath = placement.host.folder / f"guest-{name}"
        self._image_files: tuple[str, PurePosixPath] = ("", self._folder)
        """Kernel and initramfs, once the machine boots."""

    @abstractmethod
    def _modules(self) -> Sequence[str]:
        """Required kernel modules, in load order."""

    @abstractmethod
    def _script(self) -> str:
        """Shell script that the machine runs."""

    @property
    def _processors(self) -> int:
        return 1

    def _files(self) -> Sequence[str]:
        """Programs to copy from the host."""
        return ()

    def prepare(self) -> None:
        """Check for QEMU, for the contents of the initramfs, and for the kernel."""
        self.host.require(QEMU, "qemu-system-x86")
        self.host.require("busybox", "busybox")
        self.host.require("ldd", "libc-bin")
        self._kernel()

    def _kernel(self) -> tuple[str, PurePosixPath]:
        """Return the kernel image and the folder of its modules: those of the build, else those that `ringroad vm` would use."""
        ringroad = require_ringroad(self.host, "ringroad")
        build = self.placement.build
        chosen = ["--kernel", str(build.kernel)] if build and build.kernel else []
        try:
            found = json.loads(self.host.run([ringroad, "vm", "kernel", "--json", *chosen], timeout_s=120).stdout)
            return str(found["image"]), PurePosixPath(found["modules"])
        except (HostError, ValueError, KeyError, TypeError) as error:
            raise GuestError(f"guest {self.name}: no kernel found; `ringroad vm kernel --fetch DIR` downloads one: {error}") from error

    @property
    def _is_emulated(self) -> bool:
        """Whether QEMU emulates the processor. The presence of /dev/kvm does not guarantee that Debian's kernel runs on it."""
        flags = self.host.read_text(PurePosixPath("/proc/cpuinfo"))
        has_kvm = self.host.run(["test", "-w", "/dev/kvm"], check=False).status == 0
        return not (has_kvm and re.search(r"^flags\s*:.*\b(vmx|svm)\b", flags, re.MULTILINE))

    @property
    def _has_vhost(self) -> bool:
        """Whether the kernel, rather than QEMU, moves the frames of a tap."""
        return self.host.run(["test", "-w", "/dev/vhost-net"], check=False).status == 0

    def _further_options(self) -> Sequence[str]:
        """QEMU's options for what the machine has besides console and cards."""
        return ()

    @property
    def _identity(self) -> str:
        """Text that the addresses of its cards are made from."""
        return self.name

    def boot(self, cables: Sequence[Cable]) -> None:
        """Boot the machine with a card for each cable, and wait until it is up.

        Raises:
            GuestError: with the end of its log.
        """
        try:
            self.host.run(["mkdir", "-p", str(self._folder)])
            image, modules = self._kernel()
            archive = build_initramfs(self.host, self._folder, modules, self._modules(), self._script(), self._files())
            self._image_files = image, archive
            process = self._start_qemu(cables)
        except HostError as error:
            raise GuestError(f"guest {self.name}: {error}") from error
        if why := process.why_silent(self.ready_text, BOOT_LIMIT_S):
            raise GuestError(f"guest {self.name} (QEMU) {why}")

    def _start_qemu(self, cables: Sequence[Cable], *options: str) -> Process:
        command = [*self._command(*self._image_files, cables), *options]
        self._process = self.host.start(self.name, command, env=self._environment(cables), cpus=self.placement.cpus)
        return self._process

    def _environment(self, cables: Sequence[Cable]) -> dict[str, str]:
        """Return what QEMU needs to find the ports that it opens as a netmap program."""
        sockets = [cable.dut_end for cable in cables if cable.kind is CableKind.NETMAP]
        if not sockets:
            return {}
        if "netmap" not in self.host.run([QEMU, "-M", "none", "-netdev", "help"]).stdout.split():
            raise GuestError(f"guest {self.name}: this QEMU has no netmap ports; docs/netmap.md describes a build that has them")
        return {"RINGROAD_SOCKET": sockets[0]}

    def _command(self, image: str, archive: PurePosixPath, cables: Sequence[Cable]) -> list[str]:
        namespaces = {cable.dut_netns for cable in cables if cable.kind is CableKind.TAP} - {None}
        inside = ["ip", "netns", "exec", str(namespaces.pop())] if namespaces else []
        is_emulated = self._is_emulated
        memory = f"{self.memory_mib}M"
        cards: list[str] = []
        for number, cable in enumerate(cables):
            # QEMU 7.2 without KVM crashes with MSI-X interrupts as soon as a vhost-user card comes up.
            vectors = ",vectors=0" if is_emulated else ""
            high, low = (zlib.crc32(self._identity.encode()) & 0xFFFF).to_bytes(2)
            mac = f"02:00:00:{high:02x}:{low:02x}:{number:02x}"
            several = ",mq=on" if cable.queues > 1 else ""
            cards += [
                *_network_back_end(number, cable, has_vhost=not is_emulated and self._has_vhost),
                *("-device", f"virtio-net-pci,netdev=n{number},mac={mac},mrg_rxbuf=on,{OFFLOADS_OFF}{several}{vectors}"),
            ]
        return [
            *inside,
            # A build replaces only the first word of a command by itself.
            self.host.require(QEMU, "qemu-system-x86"),
            *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"),
            *self._further_options(),
            *("-M", "q35,memory-backend=mem", "-object", f"memory-backend-memfd,id=mem,size={memory},share=on", "-m", memory),
            *(("-accel", "tcg", "-cpu", "max") if is_emulated else ("-accel", "kvm", "-cpu", "host")),
            *("-smp", str(self._processors)),
            *cards,
            *("-kernel", image, "-initrd", str(archive)),
            *("-append", self._kernel_parameters),
        ]

    @property
    def _kernel_parameters(self) -> str:
        # The kernel's check of its timer would panic where QEMU gets no processor for some time.
        return f"console=ttyS0 quiet panic=-1 no_timer_check {self.kernel_arguments}".strip()

    def machine(self) -> str:
        """Return memory, processors and boot parameters."""
        processors = "1 processor" if self._processors == 1 else f"{self._processors} processors"
        return f"{self.memory_mib} MiB, {processors}, kernel parameters: {self._kernel_parameters}"

    def versions(self) -> dict[str, str]:
        """Return the version of QEMU with its accelerator, and the version of the guest's kernel."""
        output = self.host.run([QEMU, "--version"]).stdout
        match = re.search(r"version (\S+)", output)
        processor = "emulated processor (TCG): its speed is meaningless" if self._is_emulated else "KVM"
        return {"QEMU": f"{match[1] if match else 'unknown'}, {processor}", "Linux (guest)": self._kernel()[1].name}

    def files(self) -> Sequence[str]:
        """Return the kernel image."""
        return [self._kernel()[0]]

    def stop(self) -> None:
        """Stop the machine, and remove its initramfs."""
        if self._process is not None:
            self._process.stop()
        self.host.run(["rm", "-rf", str(self._folder)], check=False)


def _network_back_end(number: int, cable: Cable, *, has_vhost: bool) -> list[str]:
    if cable.kind is CableKind.VHOST_USER:
        server = "" if cable.is_dut_server else ",server=on"
        net = f"vhost-user,id=n{number},chardev=c{number},queues={cable.queues}"
        return ["-chardev", f"socket,id=c{number},path={cable.far_end}{server}", "-netdev", net]
    if cable.kind is CableKind.TAP:
        vhost = ",vhost=on" if has_vhost else ""
        return ["-netdev", f"tap,id=n{number},ifname={cable.far_end},script=no,downscript=no{vhost}"]
    if cable.kind is CableKind.NETMAP:
        return ["-netdev", f"netmap,id=n{number},ifname={cable.far_end}"]
    raise GuestError(f"a QEMU guest does not carry {cable.kind} ({cable.name})")
