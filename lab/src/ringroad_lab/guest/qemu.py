"""Virtual machines: QEMU with Debian's kernel and an archive in memory. Nothing is installed in them, and nothing stays."""

from __future__ import annotations

import json
import re
import zlib
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import ClassVar

from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.dut.interface import Placement
from ringroad_lab.errors import GuestError, HostError, MissingProgramError
from ringroad_lab.guest.initramfs import READY, build_initramfs
from ringroad_lab.guest.interface import Guest
from ringroad_lab.host.interface import Process
from ringroad_lab.record import LogExcerpt
from ringroad_lab.ringroad_program import require_ringroad

QEMU = "qemu-system-x86_64"
BOOT_LIMIT_S = 120.0
VIRTIO_MODULES = (
    *("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci"),
    *("failover", "net_failover", "virtio_net"),
)
BRIDGE_MODULES = ("llc", "stp", "bridge")
DPDK_DRIVERS = ("librte_bus_pci", "librte_bus_vdev", "librte_mempool_ring", "librte_net_virtio")
# Frames are what the device under test makes of them, and nothing merges or completes them.
OFFLOADS_OFF = "csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off"


class QemuGuest(Guest):
    """A virtual machine with a virtio-net card for each cable."""

    carries: ClassVar[frozenset[CableKind]] = frozenset({CableKind.VHOST_USER, CableKind.TAP})
    single_queue: ClassVar[frozenset[CableKind]] = carries
    is_stand_in: ClassVar[bool] = False
    memory_mib: ClassVar[int]
    kernel_arguments: ClassVar[str] = ""
    ready_text: ClassVar[str] = READY
    """What its console shows when it forwards."""

    def __init__(self, name: str, placement: Placement) -> None:
        """Name it, uniquely in the run."""
        super().__init__(name, placement)
        if placement.queues > 1:
            raise GuestError(f"guest {name}: a QEMU guest has one queue pair for each card here; take guest testpmd for {placement.queues}")
        self._host = placement.host
        self._folder: PurePosixPath = placement.host.folder / f"guest-{name}"
        self._process: Process | None = None

    @abstractmethod
    def _modules(self) -> Sequence[str]:
        """Modules that it needs, in order."""

    @abstractmethod
    def _script(self) -> str:
        """What it runs."""

    def _files(self) -> Sequence[str]:
        """Programs of the host that come along."""
        return ()

    def prepare(self) -> None:
        """Look for QEMU, for what goes into the guest, and for its kernel."""
        self._host.require(QEMU, "qemu-system-x86")
        self._host.require("busybox", "busybox")
        self._host.require("ldd", "libc-bin")
        self._kernel()

    def _kernel(self) -> tuple[str, PurePosixPath]:
        """Image of the kernel and the folder of its modules: those that `ringroad vm` would take."""
        ringroad = require_ringroad(self._host, "ringroad")
        try:
            found = json.loads(self._host.run([ringroad, "vm", "kernel", "--json"], timeout_s=120).stdout)
            return str(found["image"]), PurePosixPath(found["modules"])
        except (HostError, ValueError, KeyError, TypeError) as error:
            raise GuestError(f"guest {self.name}: no kernel for it; `ringroad vm kernel --fetch DIR` fetches one: {error}") from error

    @property
    def _is_emulated(self) -> bool:
        """Whether QEMU emulates the processor: a /dev/kvm alone does not mean that Debian's kernel runs on it."""
        flags = self._host.read_text(PurePosixPath("/proc/cpuinfo"))
        has_kvm = self._host.run(["test", "-w", "/dev/kvm"], check=False).status == 0
        return not (has_kvm and re.search(r"^flags\s*:.*\b(vmx|svm)\b", flags, re.MULTILINE))

    def start(self, cables: tuple[Cable, Cable]) -> None:
        """Boot it, and wait until it forwards."""
        try:
            self._host.run(["mkdir", "-p", str(self._folder)])
            image, modules = self._kernel()
            archive = build_initramfs(self._host, self._folder, modules, self._modules(), self._script(), self._files())
            self._process = self._host.start(self.name, self._command(image, archive, cables), cpus=self.placement.cpus)
        except HostError as error:
            raise GuestError(f"guest {self.name}: {error}") from error
        if why := self._process.why_silent(self.ready_text, BOOT_LIMIT_S):
            raise GuestError(f"guest {self.name} (QEMU) {why}")

    def _command(self, image: str, archive: PurePosixPath, cables: tuple[Cable, Cable]) -> list[str]:
        namespaces = {cable.dut_netns for cable in cables if cable.kind is CableKind.TAP} - {None}
        inside = ["ip", "netns", "exec", str(namespaces.pop())] if namespaces else []
        is_emulated = self._is_emulated
        memory = f"{self.memory_mib}M"
        cards: list[str] = []
        for number, cable in enumerate(cables):
            # Without KVM, QEMU 7.2 crashes with MSI-X interrupts as soon as a vhost-user card comes up.
            vectors = ",vectors=0" if is_emulated else ""
            high, low = (zlib.crc32(self.name.encode()) & 0xFFFF).to_bytes(2)
            mac = f"02:00:00:{high:02x}:{low:02x}:{number:02x}"
            cards += [
                *_network_back_end(number, cable),
                *("-device", f"virtio-net-pci,netdev=n{number},mac={mac},mrg_rxbuf=on,{OFFLOADS_OFF}{vectors}"),
            ]
        return [
            *inside,
            *(QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"),
            *("-M", "q35,memory-backend=mem", "-object", f"memory-backend-memfd,id=mem,size={memory},share=on", "-m", memory),
            *(("-accel", "tcg", "-cpu", "max") if is_emulated else ("-accel", "kvm", "-cpu", "host")),
            *("-smp", "1"),
            *cards,
            *("-kernel", image, "-initrd", str(archive)),
            *("-append", f"console=ttyS0 quiet panic=-1 {self.kernel_arguments}".strip()),
        ]

    def check(self) -> None:
        """Check that it lives."""
        if why := self._process.death() if self._process else "was not started":
            raise GuestError(f"guest {self.name} (QEMU) {why}")

    def processes(self) -> Sequence[Process]:
        """Return QEMU."""
        return [self._process] if self._process else []

    def versions(self) -> dict[str, str]:
        """Return the versions of QEMU, with what runs the guest's processor, and of its kernel."""
        said = self._host.run([QEMU, "--version"]).stdout
        match = re.search(r"version (\S+)", said)
        processor = "emulated processor (TCG): its speed means nothing" if self._is_emulated else "KVM"
        return {"QEMU": f"{match[1] if match else 'unknown'}, {processor}", "Linux (guest)": self._kernel()[1].name}

    def logs(self) -> Sequence[LogExcerpt]:
        """Return what QEMU and the guest's console said."""
        return [LogExcerpt(source=f"guest {self.name}", text=process.output()) for process in self.processes()]

    def stop(self) -> None:
        """End it, and remove what it booted from."""
        if self._process is not None:
            self._process.stop()
        self._host.run(["rm", "-rf", str(self._folder)], check=False)


class QemuBridgeGuest(QemuGuest):
    """Its kernel bridges the two cards."""

    kind: ClassVar[str] = "qemu-linux-bridge"
    memory_mib: ClassVar[int] = 256

    def _modules(self) -> Sequence[str]:
        return (*VIRTIO_MODULES, *BRIDGE_MODULES)

    def _script(self) -> str:
        return f"""\
echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 || true
brctl addbr br0
echo 0 >/sys/class/net/br0/bridge/multicast_snooping || true
for interface in eth0 eth1; do
    brctl addif br0 $interface
    ip link set $interface up
done
ip link set br0 up
while ! grep -q 3 /sys/class/net/br0/brif/eth0/state || ! grep -q 3 /sys/class/net/br0/brif/eth1/state; do
    usleep 20000
done
echo "{READY}"
while true; do sleep 3600; done
"""


class QemuTestpmdGuest(QemuGuest):
    """DPDK's testpmd in it polls the two cards, and forwards each frame as it is (`io`)."""

    kind: ClassVar[str] = "qemu-testpmd"
    memory_mib: ClassVar[int] = 768
    kernel_arguments: ClassVar[str] = "hugepages=96"
    ready_text: ClassVar[str] = "io packet forwarding - ports=2"

    def prepare(self) -> None:
        """Look for testpmd too."""
        super().prepare()
        self._host.require("dpdk-testpmd", "dpdk-dev")
        self._files()

    def _modules(self) -> Sequence[str]:
        # The cards stay without a driver of the kernel.
        return ("uio", "uio_pci_generic")

    def _files(self) -> Sequence[str]:
        program = self._host.require("dpdk-testpmd", "dpdk-dev")
        found = self._host.run(["sh", "-c", "ls -d /usr/lib/*/dpdk/pmds-*/*"], check=False).stdout.split()
        # By the names that they ask for each other, so that none is loaded twice.
        drivers = [path for path in found if re.fullmatch(rf"({'|'.join(DPDK_DRIVERS)})\.so\.\d+", PurePosixPath(path).name)]
        if len(drivers) != len(DPDK_DRIVERS):
            raise MissingProgramError(", ".join(DPDK_DRIVERS), "dpdk", self._host.name)
        return (program, *drivers)

    def _script(self) -> str:
        program, *drivers = self._files()
        loaded = " ".join(f"-d {driver}" for driver in drivers)
        return f"""\
for device in 1000 1041; do echo "1af4 $device" >/sys/bus/pci/drivers/uio_pci_generic/new_id; done
{program} --lcores 0@0,1@0 --in-memory -m 128 {loaded} -- --forward-mode=io --nb-cores=1 \\
    --total-num-mbufs=8192 --no-mlockall --auto-start --stats-period=3600
"""


def _network_back_end(number: int, cable: Cable) -> list[str]:
    if cable.kind is CableKind.VHOST_USER:
        server = "" if cable.is_dut_server else ",server=on"
        return ["-chardev", f"socket,id=c{number},path={cable.far_end}{server}", "-netdev", f"vhost-user,id=n{number},chardev=c{number}"]
    if cable.kind is CableKind.TAP:
        return ["-netdev", f"tap,id=n{number},ifname={cable.far_end},script=no,downscript=no"]
    raise GuestError(f"a QEMU guest does not carry {cable.kind.value} ({cable.name})")
