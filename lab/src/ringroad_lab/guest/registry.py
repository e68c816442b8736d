"""All guests, by the names of their kinds."""

from __future__ import annotations

from ringroad_lab.guest.interface import Guest
from ringroad_lab.guest.namespace_bridge import NamespaceBridgeGuest
from ringroad_lab.guest.qemu import QemuBridgeGuest, QemuTestpmdGuest
from ringroad_lab.guest.testpmd import TestpmdGuest, TestpmdMacswapGuest

GUESTS: dict[str, type[Guest]] = {
    guest.kind: guest
    for guest in (
        TestpmdGuest,
        TestpmdMacswapGuest,
        NamespaceBridgeGuest,
        QemuTestpmdGuest,
        QemuBridgeGuest,
    )
}
