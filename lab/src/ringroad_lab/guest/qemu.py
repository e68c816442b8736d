"""Virtual machines as guests, which forward."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import ClassVar

from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.errors import MissingProgramError
from ringroad_lab.guest.initramfs import READY
from ringroad_lab.guest.interface import Guest
from ringroad_lab.guest.testpmd import CSUM, IO, Forwarding, dpdk_version
from ringroad_lab.guest.virtual_machine import VIRTIO_MODULES, VirtualMachine

BRIDGE_MODULES = ("llc", "stp", "bridge")
DPDK_DRIVERS = ("librte_bus_pci", "librte_bus_vdev", "librte_mempool_ring", "librte_net_virtio")


class QemuGuest(VirtualMachine, Guest):
    """A virtual machine that forwards between its two cards."""

    single_queue: ClassVar[frozenset[CableKind]] = VirtualMachine.carries
    is_stand_in: ClassVar[bool] = False

    def start(self, cables: tuple[Cable, Cable]) -> None:
        """Boot it, and wait until it forwards."""
        self.boot(cables)


class QemuBridgeGuest(QemuGuest):
    """The guest's kernel bridges the two cards."""

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
    """DPDK's testpmd in the guest polls the two cards and forwards each frame unchanged (`io`)."""

    single_queue: ClassVar[frozenset[CableKind]] = VirtualMachine.carries - {CableKind.VHOST_USER}
    takes_queues: ClassVar[bool] = True
    memory_mib: ClassVar[int] = 768
    kernel_arguments: ClassVar[str] = "hugepages=96"
    forwarding: ClassVar[Forwarding] = IO
    ready_text: ClassVar[str] = IO.started

    def prepare(self) -> None:
        """Check for testpmd too."""
        super().prepare()
        self.host.require("dpdk-testpmd", "dpdk-dev")
        self._files()

    def versions(self) -> dict[str, str]:
        """Return the versions of QEMU, of the guest's kernel, and of the machine's DPDK, which runs in the guest."""
        return super().versions() | dpdk_version(self.host, self.host.require("dpdk-testpmd", "dpdk-dev"))

    @property
    def _processors(self) -> int:
        # One forwards for each queue pair, besides that of the main thread, as far as the run has them.
        return max(1, min(len(self.placement.cpus), 1 + self.placement.queues))

    def _modules(self) -> Sequence[str]:
        # No virtio modules: the cards must stay without a network driver of the kernel, so that DPDK can drive them.
        return ("uio", "uio_pci_generic")

    def _files(self) -> Sequence[str]:
        program = self.host.require("dpdk-testpmd", "dpdk-dev")
        found = self.host.run(["sh", "-c", "ls -d /usr/lib/*/dpdk/pmds-*/*"], check=False).stdout.split()
        # The names under which the drivers load each other, so that no driver is loaded twice.
        drivers = [path for path in found if re.fullmatch(rf"({'|'.join(DPDK_DRIVERS)})\.so\.\d+", PurePosixPath(path).name)]
        if len(drivers) != len(DPDK_DRIVERS):
            raise MissingProgramError(", ".join(DPDK_DRIVERS), "dpdk", self.host.name)
        return (program, *drivers)

    def _script(self) -> str:
        program, *drivers = self._files()
        loaded = " ".join(f"-d {driver}" for driver in drivers)
        forwarding = max(1, self._processors - 1)
        lcores = ",".join(["0@0", *(f"{number}@{number % self._processors}" for number in range(1, forwarding + 1))])
        options = " ".join(self.forwarding.options(self.placement.queues, forwarding))
        return f"""\
for device in 1000 1041; do echo "1af4 $device" >/sys/bus/pci/drivers/uio_pci_generic/new_id; done
{program} --lcores {lcores} --in-memory -m 128 {loaded} -- {options} \\
    --total-num-mbufs=8192 --no-mlockall --auto-start --stats-period=3600
"""


class QemuTestpmdCsumGuest(QemuTestpmdGuest):
    """The same, with new checksums in each frame (`csum`)."""

    forwarding: ClassVar[Forwarding] = CSUM
    ready_text: ClassVar[str] = CSUM.started
