"""The tmt engine, with the real tmt and two machines over SSH."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from sandboxed import ask_in_sandbox

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or "RINGROAD_TMT" not in os.environ or not all(map(shutil.which, ("rsync", "apt-file", "/usr/sbin/sshd"))),
    reason="needs root, openssh-server, rsync, apt-file and $RINGROAD_TMT, the environment with tmt",
)
NOTHING_LEFT = {"keys": "", "secrets": [], "processes": []}


def result_of(part: str) -> dict[str, Any]:
    # The fabricated laboratory on the machines uses the same module folders.
    found = ask_in_sandbox(Path(__file__).parent / "tmt_in_sandbox.py", part)
    assert "error" not in found, found
    return found


def test_a_job_outlives_its_dispatcher_and_returns_its_results() -> None:
    found = result_of("run")
    assert found["killed"] == -9
    assert (found["state"], found["again"]) == ("running", True)
    assert "no bed is free: runs use bed-a" in found["busy"]
    began = found["began"]
    assert began["bed"] == "bed-a"
    assert began["arguments"][:3] == ["run", "BRIDGE_VETH", "--label=build=it's 3.5"]
    # The generator read it by SSH from the device's machine.
    assert "10.8.0.2/24" in began["links"]
    assert (found["status"], found["measurements"]) == (0, 6), found["tmt"]
    assert "measured" in found["output"]
    assert (found["found when ended"], found["left"]) == (None, NOTHING_LEFT)
    assert found["lint"][0] == 0, found["lint"][1]
    assert "fail " not in found["lint"][1]
    # The results as tmt parsed them.
    assert "name: /run/P2P/ovs" in found["results"]
    assert "result: pass" in found["results"]
    assert "subresult:" in found["results"]
    assert "/throughput/64" in found["results"]


def test_a_cancelled_job_ends_after_its_trial_and_cleans_up_the_machines() -> None:
    found = result_of("cancel")
    assert (found["status"], found["run"]) == (130, "stopped"), found["tmt"]
    assert "stopped" in found["output"]
    assert found["left"] == NOTHING_LEFT


def test_the_machines_are_cleaned_up_even_if_tmt_is_ended() -> None:
    found = result_of("force")
    assert not found["is running"]
    assert found["left"] == NOTHING_LEFT, found["tmt"]


def test_the_next_job_ends_what_a_killed_one_left_and_resumes_the_run() -> None:
    found = result_of("kill")
    assert (found["status"], found["processes"]) == (None, [])
    assert found["again"][0] == "resume"
    assert not found["is the first running"]
    assert (found["resumed"], found["measurements"]) == (0, 6), found["tmt"]
    assert found["left"] == NOTHING_LEFT


@pytest.mark.skipif("RINGROAD_BIN_DIR" not in os.environ, reason="needs the generator: $RINGROAD_BIN_DIR")
def test_a_bridge_on_the_devices_machine_is_measured_from_the_generator() -> None:
    found = result_of("measure")
    assert found["status"] == 0, found
    assert found["state"] == "finished"
    ((device, status, headline),) = found["measured"]
    assert (device, headline) == ("linux-bridge", "throughput_fps")
    assert status != "invalid"
    assert "name: /run/P2P/linux-bridge" in found["results"]
    assert found["left"] == NOTHING_LEFT


def test_parts_of_a_test_on_two_machines_meet_although_one_loses_its_network() -> None:
    found = result_of("meet")
    assert found["status"] == 0, found
    assert found["outputs"] == dict.fromkeys(("generator", "dut"), ANY), found
    for output in found["outputs"].values():
        assert "barrier 1: met" in output
        assert "barrier 2: met" in output


def test_a_job_that_cannot_start_is_reported_with_the_reason() -> None:
    found = result_of("refuse")
    assert "ssh-keyscan -p 2222 10.8.0.1" in found["unknown"]
    assert "there is no program no-such-tmt" in found["missing"]
    assert "tmt needs a bed" in found["no bed"]
