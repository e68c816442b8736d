"""Functions that other processes run on a store during tests."""

from __future__ import annotations

import os
import signal

from ringroad_lab.record import RunRecord, RunState
from ringroad_lab.store.result_store import ResultStore


def head_of(record: RunRecord) -> RunRecord:
    """Return the record of a run when it begins."""
    return record.model_copy(update={"measurements": (), "state": RunState.STOPPED, "ended_at": record.started_at, "logs": ()})


def measure_until_killed(path: str, record: RunRecord) -> None:
    store = ResultStore(path)
    store.begin_run(head_of(record))
    for measurement in record.measurements[:5]:
        store.add_measurement(record.run_id, measurement)
    os.kill(os.getpid(), signal.SIGKILL)


def append(path: str, record: RunRecord) -> None:
    with ResultStore(path) as store:
        store.begin_run(head_of(record))
        for measurement in record.measurements:
            store.add_measurement(record.run_id, measurement)
        store.end_run(record)
