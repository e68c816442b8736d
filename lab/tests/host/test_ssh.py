"""Another machine by SSH: a real sshd in another network namespace."""

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
def results() -> dict[str, Any]:
    return ask_in_sandbox(Path(__file__).parent / "ssh_in_sandbox.py", {})


def test_an_unusable_machine_is_reported_with_the_reason(results: dict[str, Any]) -> None:
    assert "refused" in results["refused"]
    assert "a key that is not in" in results["unknown"]
    assert "ssh-keyscan" in results["unknown"]
    assert "authorized_keys" in results["stranger"]
    assert "unreachable" in results["no route"]
    assert "/no/such/key" in results["no key"]


def test_commands_and_files_are_of_the_other_machine(results: dict[str, Any]) -> None:
    host = results["host"]
    assert "far0@" in host["links"]
    assert "near0" not in host["links"]
    assert host["stdin"] == "ä\n"
    assert host["status"] == 3
    assert host["env"] == "it's\n"
    assert host["file"] == "text\n"
    assert host["programs"][0].endswith("/ip")
    assert host["programs"][1] is None


def test_failures_are_reported_with_their_output(results: dict[str, Any]) -> None:
    host = results["host"]
    assert "did not end within 0.5 s on far" in host["slow"]
    assert "why" in host["failed"]
    assert "no program no-such-program on far" in host["no program"]
    assert "/no/such/file" in host["no file"]


def test_processes_run_and_end_on_the_other_machine(results: dict[str, Any]) -> None:
    host = results["host"]
    assert host["output"]
    assert host["runs"]
    assert host["stopped"] == [-15, False, False]
    assert host["killed"] == [-9, False]
    assert host["ended"] == [False, 7]


def test_nothing_remains_on_the_other_machine(results: dict[str, Any]) -> None:
    assert results["host"]["closed"] == [False, False]
    lost = results["lost"]
    assert (lost["output"], lost["runs"], lost["cleaned up"]) == (False, False, True)
    assert "far" in lost["error"]


def test_a_bridge_on_the_other_machine_is_measured_from_here(results: dict[str, Any]) -> None:
    assert all(received > 0 for received in results["setup"]["received"])
    assert results["setup"]["counters"]["1.rx_frames"] >= results["setup"]["received"][0]
