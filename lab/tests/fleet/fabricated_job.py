"""`ringroad-lab` as an engine calls it, except that nothing is measured: the run is fabricated.

The job measures half, writes a file with its run's name in $FABRICATED_FOLDER, and continues when the file `go` exists there. A build with
`slow` in its name carries half as much as others. On a bed the job holds the bed's lease, like any run.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from simulated_engine import tiny_run

from ringroad_lab.errors import LabError
from ringroad_lab.fleet.engine.job_environment import BED_VARIABLE, job_of_this_process
from ringroad_lab.record import RunRecord, RunState
from ringroad_lab.run.chosen_bed import find_bed
from ringroad_lab.sandbox.machine_lock import LOCK_DESCRIPTOR_VARIABLE, machine_lock
from ringroad_lab.store.result_store import ResultStore
from store_writers import head_of


def main() -> int:
    run_id = job_of_this_process()
    assert run_id
    assert LOCK_DESCRIPTOR_VARIABLE in os.environ or "SLURM_JOB_ID" in os.environ
    is_stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_stopped.set())
    bed = find_bed(os.environ.get(BED_VARIABLE), None)
    location = os.environ["RINGROAD_LAB_STORE"]
    with machine_lock(run_id), ResultStore(location) as store:
        if bed is None:
            return measure(store, begin(store, run_id), is_stopped)
        with bed.occupied(location, run_id, []) as guard:
            fenced = store.fenced(guard.check_in)
            record = begin(fenced, run_id)
            with guard.ending(is_stopped.set):
                status = measure(fenced, record, is_stopped)
            guard.state = RunState.STOPPED if status else RunState.FINISHED
            return status


def begin(store: ResultStore, run_id: str) -> RunRecord:
    """Begin the run, unless it was begun; return the complete run."""
    if run_id in [run.run_id for run in store.summaries()]:
        begun = store.get_run(run_id)
    else:
        assert sys.argv[1] == "run"
        labels = dict(argument.removeprefix("--label=").split("=", 1) for argument in sys.argv if argument.startswith("--label="))
        begun = head_of(tiny_run(run_id).model_copy(update={"name": sys.argv[2], "labels": labels}))
        store.begin_run(begun)
    whole = tiny_run(run_id, capacity=5e5 if "slow" in begun.labels.get("build", "") else 1e6)
    return whole.model_copy(update={"name": begun.name, "labels": begun.labels})


def measure(store: ResultStore, record: RunRecord, is_stopped: threading.Event) -> int:
    """Measure half, wait until the file `go` exists, and measure the rest; return the exit status."""
    folder, run_id = Path(os.environ["FABRICATED_FOLDER"]), record.run_id
    there = len(store.get_run(run_id).measurements)
    for measurement in record.measurements[there:3]:
        store.add_measurement(run_id, measurement)
    (folder / run_id).write_text(str(os.getpid()))
    while not (folder / "go").exists() and not is_stopped.wait(0.02):
        pass
    if is_stopped.is_set():
        store.end_run(record.model_copy(update={"measurements": (), "state": RunState.STOPPED}))
        return 130
    for measurement in record.measurements[max(3, there) :]:
        store.add_measurement(run_id, measurement)
    store.end_run(record)
    print("measured")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LabError as error:
        print(error)
        sys.exit(error.exit_status)
