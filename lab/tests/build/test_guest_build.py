"""Guests run the QEMU of their build."""

from __future__ import annotations

from pathlib import PurePosixPath

from ringroad_lab.build.opened import Build, BuildHost
from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.dut.interface import Placement
from ringroad_lab.host.local import LocalHost
from ringroad_lab.message_size.guest_station import GuestStation


def test_a_guest_on_a_tap_within_a_namespace_runs_the_qemu_of_its_build() -> None:
    host = LocalHost()
    try:
        build = Build("prefix /build", None, {"qemu-system-x86_64": "/build/bin/qemu-system-x86_64"})
        station = GuestStation("station1", Placement(BuildHost(host, build), frozenset(), build=build))
        cable = Cable(CableKind.TAP, "m1", "m1_dut", "m1_dut", dut_netns="inside")
        command = station._command("vmlinuz", PurePosixPath("initramfs"), [cable])
        assert command[:5] == ["ip", "netns", "exec", "inside", "/build/bin/qemu-system-x86_64"]
    finally:
        host.close()
