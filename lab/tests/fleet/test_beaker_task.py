"""The Beaker task, executed on two machines: network namespaces with sshd. Restraint's programs are stand-ins."""

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


def result_of(part: str) -> dict[str, Any]:
    return ask_in_sandbox(Path(__file__).parent / "beaker_task_in_sandbox.py", part)


def logs(seen: dict[str, Any]) -> str:
    return f"{seen['generator']}\n--- dut\n{seen['dut']}\n--- results\n{seen['results']}"


def test_the_device_is_measured_over_ssh_and_both_machines_are_cleaned_up() -> None:
    seen = result_of("measured")
    assert seen["statuses"] == [0, 0], logs(seen)
    assert seen["results"] == [
        "dut /ringroad/measure/exit-status PASS 0: the generator has ended",
        "generator /ringroad/measure/exit-status PASS 0: ringroad-lab ended with status 0",
    ], logs(seen)
    assert seen["run"] == {"state": "finished", "failure": "", "measurements": ["ok"]}, logs(seen)
    assert "finished: 1 measurements" in seen["log"]
    assert seen["authorized"] == OTHERS
    assert seen["left"] == []
    assert not seen["fleet"]


def test_the_score_of_a_failed_run_is_its_exit_status() -> None:
    seen = result_of("failed")
    assert seen["results"][0].startswith("dut /ringroad/measure/exit-status PASS 0"), logs(seen)
    assert seen["results"][1].startswith("generator /ringroad/measure/exit-status FAIL 2: ringroad-lab ended with status 2: "), logs(seen)
    assert "NO_SUCH_SCENARIO" in seen["log"]
    assert seen["authorized"] == OTHERS


def test_a_generator_without_a_device_gives_up() -> None:
    seen = result_of("alone")
    assert seen["results"] == ["generator /ringroad/measure/exit-status FAIL 1: the device's machine did not come within 10 s"], logs(seen)


def test_a_restart_of_the_generator_is_reported_to_the_device() -> None:
    seen = result_of("restarted")
    assert seen["statuses"] == [0, 0], logs(seen)
    assert seen["results"] == [
        "dut /ringroad/measure/exit-status FAIL 1: the generator ended early",
        "generator /ringroad/measure/exit-status FAIL 1: the generator restarted while it measured",
    ], logs(seen)
    assert seen["authorized"] == OTHERS


def test_the_end_of_the_generators_task_is_reported_to_the_device() -> None:
    seen = result_of("cancelled")
    assert seen["statuses"] == [0, 0], logs(seen)
    assert seen["results"] == [
        "dut /ringroad/measure/exit-status FAIL 1: the generator ended early",
        "generator /ringroad/measure/exit-status FAIL 1: the task was ended",
    ], logs(seen)
    assert seen["authorized"] == OTHERS


def test_an_unauthenticated_key_is_rejected() -> None:
    seen = result_of("stranger")
    assert "is not signed by this job's secret" in seen["dut"]
    assert seen["authorized"] == OTHERS
    assert seen["results"] == ["dut /ringroad/measure/exit-status FAIL 1: the generator's machine did not come within 10 s"], logs(seen)
