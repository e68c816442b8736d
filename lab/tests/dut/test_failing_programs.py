"""Devices and guests whose programs are missing, end early, or print nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.dut import ringroad, ringroad_daemon, testpmd
from ringroad_lab.dut.interface import DUTS, DutPort, Placement, Rule
from ringroad_lab.errors import DutError, GuestError, LabError
from ringroad_lab.guest import testpmd as testpmd_guest
from ringroad_lab.guest.interface import GUESTS
from ringroad_lab.host.local import LocalHost

CABLES = tuple(Cable(CableKind.VHOST_USER, f"c{number}", f"/no/c{number}.sock", f"/no/c{number}.sock") for number in (1, 2))
PORTS = tuple(DutPort(number, cable) for number, cable in enumerate(CABLES, 1))
RULES = (Rule(1, 2), Rule(2, 1))


@pytest.fixture
def placement(tmp_path: Path) -> Iterator[Placement]:
    host = LocalHost(tmp_path)
    yield Placement(host, frozenset({0}), huge_pages=False)
    host.close()


def start_ringroad(placement: Placement) -> None:
    dut = ringroad.RingroadSwitch(ringroad.RingroadSettings(), placement)
    try:
        dut.prepare()
        dut.start()
    finally:
        dut.stop()
        dut.stop()


def start_testpmd(placement: Placement) -> None:
    dut = testpmd.Testpmd(testpmd.TestpmdSettings(), placement)
    try:
        dut.prepare()
        dut.start()
        dut.configure(PORTS, RULES)
    finally:
        dut.stop()
        dut.stop()


def start_guest(placement: Placement) -> None:
    guest = testpmd_guest.TestpmdGuest("guest1", placement)
    try:
        guest.prepare()
        guest.start((CABLES[0], CABLES[1]))
    finally:
        guest.stop()
        guest.stop()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("echo no memory; exit 3", "ended with status 3: no memory"),
        ("exit 1", "ended with status 1: no output"),
        ("exec sleep 100", "is not ready after 0.3 s: no output"),
        ("trap '' TERM; echo well; sleep 0.4; exec sleep 0.1", "is not ready after 0.3 s: well"),
    ],
    ids=["ends", "silent", "hangs", "slow"],
)
@pytest.mark.parametrize("start", [start_ringroad, start_testpmd, start_guest])
def test_a_program_that_is_never_ready_is_reported_with_its_output(
    start: Callable[[Placement], None],
    program: str,
    reason: str,
    placement: Placement,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("ringroad", "ringroadd", "dpdk-testpmd", "dpdk-telemetry.py"):
        (programs / name).write_text(f"#!/bin/sh\n{program}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("RINGROAD_BIN_DIR", str(programs))
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    for module, limit in ((ringroad_daemon, "START_TIMEOUT_S"), (testpmd, "START_TIMEOUT_S"), (testpmd_guest, "START_LIMIT_S")):
        monkeypatch.setattr(module, limit, 0.3 if "exit" not in program else 30.0)
    with pytest.raises((DutError, GuestError)) as raised:
        start(placement)
    assert reason in str(raised.value)


@pytest.mark.parametrize("driver", DUTS)
def test_a_device_that_was_not_started_can_be_stopped(driver: str, placement: Placement) -> None:
    dut = DUTS[driver](DUTS[driver].settings_type(), placement)
    dut.stop()
    dut.stop()
    if driver != "linux-bridge":
        with pytest.raises(DutError, match="was not started"):
            dut.check()


@pytest.mark.parametrize("kind", GUESTS)
def test_a_guest_that_was_not_started_can_be_stopped(kind: str, placement: Placement) -> None:
    guest = GUESTS[kind]("guest1", placement)
    guest.stop()
    guest.stop()


@pytest.mark.parametrize("driver", DUTS)
def test_a_device_names_missing_programs(driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = LocalHost(tmp_path)
    try:
        dut = DUTS[driver](DUTS[driver].settings_type(), Placement(host, frozenset({0})))
        monkeypatch.setattr(LocalHost, "find_program", lambda _self, _program: None)
        with pytest.raises(LabError, match=r"is not installed on this machine: (apt-get install|`make build`) "):
            dut.prepare()
        monkeypatch.undo()
    finally:
        host.close()
