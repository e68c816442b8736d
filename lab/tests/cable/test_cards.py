"""Network cards: bound to vfio-pci, driven by DPDK, and restored, in a real kernel with an IOMMU (both emulated)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from vfio_machine import CARDS

from sandboxed import ask_in_sandbox

needed = ("qemu-system-x86_64", "dpdk-testpmd", "ssh-keygen", "busybox", "ethtool")
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or None in map(shutil.which, needed) or not os.path.exists("/usr/sbin/sshd"),
    reason=f"needs root, sshd, {', '.join(needed)}",
)
# The machine's processor is emulated.
TIMEOUT_S = 600


def test_cards_are_bound_to_vfio_pci_driven_by_dpdk_and_restored() -> None:
    # One test, so that the machine boots once.
    names = ("RINGROAD_BIN_DIR", "RINGROAD_KERNEL_DIR")
    env = {name: os.environ[name] for name in names if name in os.environ}
    results: dict[str, Any] = ask_in_sandbox(Path(__file__).with_name("vfio_machine.py"), {}, env, timeout_s=TIMEOUT_S)
    assert "error" not in results, results["error"]
    # Name, MTU and state are restored with the driver.
    given = results["given"]
    assert given["address"] == given["again"] == given["by address"] == CARDS[1]
    assert given["given"] == "vfio-pci"
    assert not any(line.startswith("eth2") for line in given["links"])
    assert any(line.startswith("eth2") and "mtu 1400" in line and ",UP" in line for line in given["before"])
    assert (given["after"], given["put back"]) == (given["before"], "virtio-pci")
    assert "has an address: it carries traffic of its machine" in given["in use"]
    assert "there is no interface and no PCI device eth9" in given["absent"]
    assert "eth1 has no virtual functions (SR-IOV)" in given["functions"]
    killed = results["killed"]
    assert killed["given"] == "vfio-pci"
    assert any(line.startswith("eth2") and "mtu 9000" in line for line in killed["set"])
    assert killed["is put back"]
    setup = results["setup"]
    assert setup["drivers"] == ["vfio-pci", "vfio-pci"]
    assert all(received > 0 for received in setup["received"])
    assert setup["counters"]["1.rx_frames"] > 0
