"""The record of a device under test."""

from __future__ import annotations

from collections.abc import Sequence

from ringroad_lab.build.opened import file_sums, running_files
from ringroad_lab.cable.interface import CableKind
from ringroad_lab.dut.interface import Dut
from ringroad_lab.guest.interface import Peer
from ringroad_lab.host.interface import Host
from ringroad_lab.record import DutRecord
from ringroad_lab.scenario.model import DutChoice


def dut_record(choice: DutChoice, dut: Dut, peers: Sequence[Peer], versions: dict[str, str], ports: dict[str, str]) -> DutRecord:
    """Return the record of a plugged-in device, with the guests or stations that are its peers."""
    place = dut.placement.host
    files = running_files(place, dut.processes(), dut.placement.build)
    for peer in peers:
        files |= running_files(place, peer.processes(), peer.placement.build)
        files |= file_sums(place, peer.files(), peer.placement.build)
    guest_builds = [peer.placement.build for peer in peers if peer.placement.build]
    return DutRecord(
        label=choice.label,
        driver=choice.driver,
        settings=dut.settings.model_dump(mode="json") | choice.own(),
        versions=versions,
        ports={name: without_run(mode, place) for name, mode in ports.items()},
        build=dut.placement.build.source if dut.placement.build else "",
        guest_build=guest_builds[0].source if guest_builds else "",
        files=files,
        guests={peer.name: text for peer in peers if (text := peer.machine())},
    )


def without_run(mode: str, host: Host) -> str:
    """Return the mode of a port without the run's folder and prefix: names with them differ in each run, which is not a difference."""
    return mode.replace(f"{host.folder}/", "").replace(host.cable_prefix, "")


def forwards_in_sender(kind: CableKind, dut_type: type[Dut]) -> bool:
    """Return whether all of the device's forwarding runs in the sender's thread."""
    return kind is CableKind.VETH and dut_type.forwards_for_sender


def work_of_sender(kind: CableKind, dut_type: type[Dut]) -> str:
    """Return the part of the device's work that runs in the sender's thread and takes its processor time; empty if there is none."""
    if kind is not CableKind.VETH:
        return ""
    if forwards_in_sender(kind, dut_type):
        return "all of its forwarding, up to the interface where the generator receives: a veth passes frames on in the sender's thread"
    return "receiving, up to the queue where the device takes frames from: a veth passes frames on in the sender's thread"
