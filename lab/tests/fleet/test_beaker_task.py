"""The task for Beaker, run for real on two machines: network namespaces with sshd. Restraint's programs are stand-ins."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from sandboxed import ask_in_sandbox

pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or not os.path.exists("/usr/sbin/sshd") or shutil.which("ssh-keygen") is None,
        reason="needs root and openssh-server",
    ),
    pytest.mark.skipif(importlib.util.find_spec("ringroad_lab.rendezvous") is None, reason="needs ringroad-lab rendezvous"),
]
OTHERS = "ssh-ed25519 AAAA somebody else\n"


def told(what: str) -> dict[str, Any]:
    return ask_in_sandbox(Path(__file__).parent / "beaker_task_in_sandbox.py", what)


def logs(said: dict[str, Any]) -> str:
    return f"{said['generator']}\n--- dut\n{said['dut']}\n--- results\n{said['results']}"


def test_the_device_is_measured_over_ssh_and_all_is_put_back() -> None:
    said = told("measured")
    assert said["statuses"] == [0, 0], logs(said)
    assert said["results"] == [
        "dut /ringroad/measure/exit-status PASS 0: the generator has ended",
        "generator /ringroad/measure/exit-status PASS 0: ringroad-lab ended with status 0",
    ], logs(said)
    assert said["run"] == {"state": "finished", "failure": "", "measurements": ["ok"]}, logs(said)
    assert "finished: 1 measurements" in said["log"]
    assert said["authorized"] == OTHERS
    assert said["left"] == []
    assert not said["fleet"]


def test_a_run_that_fails_has_its_status_as_score() -> None:
    said = told("failed")
    assert said["results"][0].startswith("dut /ringroad/measure/exit-status PASS 0"), logs(said)
    assert said["results"][1].startswith("generator /ringroad/measure/exit-status FAIL 2: ringroad-lab ended with status 2: "), logs(said)
    assert "NO_SUCH_SCENARIO" in said["log"]
    assert said["authorized"] == OTHERS


def test_a_generator_that_is_left_alone_gives_up() -> None:
    said = told("alone")
    assert said["results"] == ["generator /ringroad/measure/exit-status FAIL 1: the device's machine did not come within 10 s"], logs(said)


def test_after_a_restart_of_the_generator_the_device_is_reported() -> None:
    said = told("restarted")
    assert said["statuses"] == [0, 0], logs(said)
    assert said["results"] == [
        "dut /ringroad/measure/exit-status FAIL 1: the generator ended early",
        "generator /ringroad/measure/exit-status FAIL 1: the generator restarted while it measured",
    ], logs(said)
    assert said["authorized"] == OTHERS


def test_a_task_that_is_ended_tells_the_device() -> None:
    said = told("cancelled")
    assert said["statuses"] == [0, 0], logs(said)
    assert said["results"] == [
        "dut /ringroad/measure/exit-status FAIL 1: the generator ended early",
        "generator /ringroad/measure/exit-status FAIL 1: the task was ended",
    ], logs(said)
    assert said["authorized"] == OTHERS


def test_a_strangers_key_is_not_let_in() -> None:
    said = told("stranger")
    assert "is not signed by this job's secret" in said["dut"]
    assert said["authorized"] == OTHERS
    assert said["results"] == ["dut /ringroad/measure/exit-status FAIL 1: the generator's machine did not come within 10 s"], logs(said)
