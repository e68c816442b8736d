"""The dispatcher and beds: jobs get free beds, an unfit bed costs no attempt, and the reason for waiting is reported."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from simulated_engine import Cluster, SimulatedEngine

from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import BedError
from ringroad_lab.fleet.bed_leases import BedLeases
from ringroad_lab.fleet.dispatcher import Dispatcher, DispatcherSettings
from ringroad_lab.fleet.engine.interface import EngineSettings, Job, JobState
from ringroad_lab.fleet.engine.local import LocalEngine
from ringroad_lab.fleet.inventory import BedSettings
from ringroad_lab.fleet.leases import Leases
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.request.message import Message
from ringroad_lab.request.model import RequestState, Wanted
from ringroad_lab.store.result_store import ResultStore

BEDS = {name: BedSettings.model_validate({"class": "veth", "machines": {"generator": "here"}}) for name in ("a", "b")}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with ResultStore(str(tmp_path / "results.db")) as store:
        yield store


def ask(store: ResultStore, bed_class: str = "veth") -> None:
    Requests(store).add(
        Message("koji", b"{}", 0.0), [Wanted(build=f"for {bed_class}", scenario="BRIDGE_VETH", bed_class=bed_class, built_at=0.0)]
    )


def dispatch(cluster: Cluster) -> list[str]:
    output: list[str] = []
    settings = DispatcherSettings(attempts=1, retry_wait_s=0.0, poll_s=0.01)
    leases = Leases(cluster.store, "local", beds=BEDS)
    Dispatcher(cluster.store, SimulatedEngine(cluster), leases, settings, say=output.append).run(threading.Event(), once=True)
    return output


def test_a_bed_that_fails_its_calibration_costs_no_attempt_and_another_is_used(store: ResultStore) -> None:
    cluster, runs = Cluster(store), BedLeases(store, holder="elsewhere:1:2:3")

    def measure(job: Job) -> None:
        name = next(iter(job.beds))
        lease = runs.take(name, job.name)
        if name == "a":
            cluster.begin(job.name)
            runs.give_back(lease, "failed", "it failed its calibration")
            cluster.end(job.name, BedError.exit_status, "bed a failed its calibration")
        else:
            cluster.finish_job(job)
            runs.give_back(lease, "finished")

    cluster.on_submit = measure
    ask(store)
    dispatch(cluster)
    (request,) = Requests(store).find()
    # The request is allowed only one attempt.
    assert (request.state, request.attempts, request.beds) == (RequestState.DONE, 1, ("b",))
    first, second = cluster.submitted
    assert (set(first.beds), set(second.beds)) == ({"a", "b"}, {"b"})
    # A run belongs to one bed.
    assert (first.name != second.name, second.arguments[0]) == (True, "run")
    assert any("bed a failed its calibration" in change.why for change in Requests(store).changes(1))


def test_a_request_that_waits_for_an_operator_is_reported_and_does_not_block_others(store: ResultStore) -> None:
    cluster = Cluster(store)
    cluster.on_submit = cluster.finish_job
    ask(store, "nic400g")
    ask(store)
    output = dispatch(cluster)
    assert output.count("requests for class nic400g, BRIDGE_VETH wait: no bed of class nic400g fits scenario BRIDGE_VETH") == 1
    assert {each.build: each.state for each in Requests(store).find()} == {"for nic400g": RequestState.NEW, "for veth": RequestState.DONE}
    for name in BEDS:
        BedLeases(store).quarantine(name, "under repair", "ann")
    ask(store, "any")
    assert any("all beds that fit are in quarantine: a, b" in each for each in dispatch(cluster))
    assert len(cluster.submitted) == 1


def test_the_local_engine_passes_the_bed_to_the_run(tmp_path: Path) -> None:
    program = (sys.executable, "-c", "import os; print(os.environ['RINGROAD_LAB_BED'])")
    engine = LocalEngine(EngineSettings(None, tmp_path, program))
    key = engine.submit(Job("00000000-run", (), {"b": BEDS["b"]}))
    assert wait_until(lambda: engine.state(key).state is JobState.ENDED, 60)
    assert (engine.state(key).exit_status, engine.state(key).output) == (0, "b")
