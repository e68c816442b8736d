"""Another machine by SSH: a real sshd, in another network namespace."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from sandboxed import ask_in_sandbox

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists("/usr/sbin/sshd") or shutil.which("ssh-keygen") is None,
    reason="needs root and openssh-server",
)


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return ask_in_sandbox(Path(__file__).parent / "ssh_in_sandbox.py", {})


def test_an_unusable_machine_is_reported_with_the_reason(told: dict[str, Any]) -> None:
    assert "refused" in told["refused"]
    assert "a key that is not in" in told["unknown"]
    assert "ssh-keyscan" in told["unknown"]
    assert "authorized_keys" in told["stranger"]
    assert "unreachable" in told["no route"]
    assert "/no/such/key" in told["no key"]


def test_commands_and_files_are_the_other_machines(told: dict[str, Any]) -> None:
    host = told["host"]
    assert "far0@" in host["links"]
    assert "near0" not in host["links"]
    assert host["stdin"] == "ä\n"
    assert host["status"] == 3
    assert host["env"] == "it's\n"
    assert host["file"] == "text\n"
    assert host["programs"][0].endswith("/ip")
    assert host["programs"][1] is None


def test_failures_are_reported_with_their_output(told: dict[str, Any]) -> None:
    host = told["host"]
    assert "did not end within 0.5 s on far" in host["slow"]
    assert "why" in host["failed"]
    assert "no program no-such-program on far" in host["no program"]
    assert "/no/such/file" in host["no file"]


def test_processes_run_and_end_there(told: dict[str, Any]) -> None:
    host = told["host"]
    assert host["said"]
    assert host["runs"]
    assert host["stopped"] == [-15, False, False]
    assert host["killed"] == [-9, False]
    assert host["ended"] == [False, 7]


def test_nothing_is_left_there(told: dict[str, Any]) -> None:
    assert told["host"]["closed"] == [False, False]
    lost = told["lost"]
    assert (lost["said"], lost["runs"], lost["cleaned up"]) == (False, False, True)
    assert "far" in lost["error"]


def test_a_bridge_on_the_other_machine_is_measured_from_here(told: dict[str, Any]) -> None:
    assert all(received > 0 for received in told["bed"]["received"])
    assert told["bed"]["counters"]["1.rx_frames"] >= told["bed"]["received"][0]
