"""Whole runs on a bed, from the command line: exclusive, calibrated, killed and resumed. A real device, tiny durations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from processes import descendants
from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import BedError
from ringroad_lab.fleet.bed_leases import LOST, BedLeases
from ringroad_lab.fleet.bed_overview import overview
from ringroad_lab.fleet.engine.job_environment import BED_VARIABLE
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.record import RunState
from ringroad_lab.request.model import RequestState
from ringroad_lab.sandbox.machine_lock import LOCK_VARIABLE
from ringroad_lab.store.result_store import ResultStore

# Only a failure takes this long.
PATIENCE_S = 240.0
FLEET = """
[bed.here]
class = "veth"
machines.generator = "localhost"
layers = ["quick"]
settings = ["frames=[64, 1518]", "method.throughput.resolution=0.4", "repetitions=3"]

[bed.weak]
machines.generator = "localhost"
calibration_minimum_fps = {64 = 1e12}
"""


class Lab:
    """The program, with a store and a fleet of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = ResultStore(str(folder / "results.db"))
        self.leases = BedLeases(self.store)
        (folder / "fleet.toml").write_text(FLEET)
        self.env = {**os.environ, "RINGROAD_LAB_STORE": self.store.location, "RINGROAD_LAB_CONFIG": str(folder)}
        self.env["PYTHONPATH"] = os.pathsep.join(sys.path)
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "ringroad_lab.cli.main", *arguments]
        process = subprocess.Popen(
            argv, env=self.env | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str, **environment: str) -> tuple[int, dict[str, Any], str]:
        process = self.start(*arguments, **environment)
        output, errors = process.communicate(timeout=PATIENCE_S)
        return process.returncode, json.loads(output) if output else {}, errors

    def measured(self) -> int:
        return sum(sum(run.statuses.values()) for run in self.store.summaries())


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    for process in made.started:
        process.kill()
        process.communicate()
    made.store.close()


@pytest.mark.long
def test_a_killed_run_is_resumed_on_its_bed_which_no_other_run_has_meanwhile(lab: Lab) -> None:
    first = lab.start("run", "BRIDGE_VETH", "--bed", "here", "--set", "repetitions=2", "--quiet")
    assert wait_until(lambda: lab.measured() > 0 or first.poll() is not None, PATIENCE_S)
    assert first.poll() is None, first.communicate()
    # It must not finish before it is killed, however long the commands beside it take.
    measuring = descendants(first.pid, "ringroad_lab.run.inside")
    for process in measuring:
        process.suspend()
    assert measuring
    # A separate lock stands for another machine.
    elsewhere = {LOCK_VARIABLE: str(lab.folder / "other.lock"), BED_VARIABLE: "here"}
    status, _, errors = lab.run("run", "BRIDGE_VETH", **elsewhere)
    assert (status, "bed here is taken" in errors) == (BedError.exit_status, True), errors
    first.kill()
    first.wait()
    (begun,) = lab.store.summaries()
    status, _, errors = lab.run("resume", begun.run_id, "--bed", "weak")
    assert (status, "started on bed here" in errors) == (BedError.exit_status, True), errors
    status, output, errors = lab.run("resume", begun.run_id, "--json")
    assert status == 0, errors
    record = lab.store.get_run(begun.run_id)
    # The bed's settings lie below the arguments of the run.
    assert (record.state, len(record.measurements), output["state"]) == (RunState.FINISHED, 4, "finished")
    assert record.facts["bed"] == {"name": "here", "class": "veth", "generator": "localhost"}
    state = lab.leases.states(["here"])["here"]
    assert (state.is_free, state.token) == (True, 2)
    assert [each.outcome for each in overview(lab.store, {}, 0.0).history] == ["finished", LOST]


def test_a_bed_that_is_too_weak_goes_into_quarantine_and_nothing_is_measured(lab: Lab) -> None:
    quick = ("--layer", "quick", "--set", "frames=[64]")
    status, output, errors = lab.run("run", "BRIDGE_VETH", "--bed", "weak", *quick, "--json")
    assert (status, output["state"], output["measurements"]) == (BedError.exit_status, "failed", []), errors
    assert "calibration_minimum_fps" in output["failure"]
    status, _, errors = lab.run("run", "BRIDGE_VETH", "--bed", "weak", *quick)
    assert (status, "in quarantine since" in errors) == (BedError.exit_status, True), errors
    status, listed, _ = lab.run("beds", "--json")
    assert [(bed["name"], bed["word"]) for bed in listed["beds"]] == [("here", "free"), ("weak", "quarantine")]
    assert lab.start("beds", "release", "weak", "--forget-calibrations").wait(PATIENCE_S) == 0
    assert lab.leases.states(["weak"])["weak"].is_free


def test_a_request_gets_another_bed_if_a_bed_is_unfit(lab: Lab) -> None:
    text = (lab.folder / "fleet.toml").read_text().replace("[bed.weak]", "[bed.a-weak]")
    (lab.folder / "fleet.toml").write_text(text)
    command = ("request", "my-switch-1", "--scenario", "BRIDGE_VETH", "--layer", "quick", "--set", "frames=[64]", "--set", "repetitions=1")
    assert lab.start(*command).wait(PATIENCE_S) == 0
    status, _, errors = lab.run("dispatch", "--once", "--attempts", "1", "--poll", "0.1", "--retry-wait", "0")
    assert status == 0, errors
    (request,) = Requests(lab.store).find()
    assert (request.state, request.attempts, request.beds) == (RequestState.DONE, 1, ("here",)), errors
    assert [(each.bed, each.request_id) for each in overview(lab.store, {}, 0.0).history] == [("here", 1), ("a-weak", 1)]
    assert lab.leases.states(["a-weak"])["a-weak"].quarantine
    assert lab.store.get_run(str(request.run_id)).facts["bed"]["name"] == "here"
