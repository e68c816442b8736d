"""`ringroad-lab` as an engine calls it, but for the measuring: the run is fabricated.

It measures half, says so by a file of its run's name in $FABRICATED_FOLDER, and goes on when there is a file `go` there.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from simulated_engine import tiny_run

from ringroad_lab.record import RunState
from ringroad_lab.run.job import job_of_this_process
from ringroad_lab.run.machine_lock import LOCK_DESCRIPTOR_VARIABLE, machine_lock
from ringroad_lab.store.result_store import ResultStore
from store_writers import head_of


def main() -> int:
    folder = Path(os.environ["FABRICATED_FOLDER"])
    is_stopped = False

    def stop(*_: object) -> None:
        nonlocal is_stopped
        is_stopped = True

    signal.signal(signal.SIGTERM, stop)
    run_id = job_of_this_process()
    assert run_id
    assert LOCK_DESCRIPTOR_VARIABLE in os.environ or "SLURM_JOB_ID" in os.environ
    record = tiny_run(run_id)
    with machine_lock(run_id), ResultStore(os.environ["RINGROAD_LAB_STORE"]) as store:
        if run_id not in [run.run_id for run in store.summaries()]:
            assert sys.argv[1] == "run"
            store.begin_run(head_of(record))
        there = len(store.get_run(run_id).measurements)
        for measurement in record.measurements[there:3]:
            store.add_measurement(run_id, measurement)
        (folder / run_id).write_text(str(os.getpid()))
        while not (folder / "go").exists() and not is_stopped:
            time.sleep(0.02)
        if is_stopped:
            store.end_run(record.model_copy(update={"measurements": (), "state": RunState.STOPPED}))
            return 130
        for measurement in record.measurements[max(3, there) :]:
            store.add_measurement(run_id, measurement)
        store.end_run(record)
    print("measured")
    return 0


if __name__ == "__main__":
    sys.exit(main())
