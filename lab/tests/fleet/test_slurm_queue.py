"""Output of `squeue --json` in the formats of several versions of Slurm; test_slurm queries the installed version."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringroad_lab.fleet.engine.interface import EngineError, JobState
from ringroad_lab.fleet.engine.slurm_queue import QueuedJob, read_jobs


def number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


NO_NUMBER = {"set": False, "infinite": False, "number": 0}


def one(**values: Any) -> QueuedJob:  # noqa: ANN401
    job = {"job_id": 7, "name": "a", "job_state": "RUNNING", "unknown": [1], **values}
    (read,) = read_jobs(json.dumps({"meta": {}, "jobs": [job], "errors": []}))
    return read


@pytest.mark.parametrize(
    ("code", "status"),
    [
        # 22.05 and 23.02: a wait() status.
        (3 << 8, 3),
        (15, -15),
        (0, 0),
        (number(5 << 8), 5),
        (0xFFFFFFFE, None),
        # Since 23.11
        ({"status": ["ERROR"], "return_code": number(4), "signal": {"id": NO_NUMBER, "name": ""}}, 4),
        ({"status": ["SIGNALED"], "return_code": NO_NUMBER, "signal": {"id": number(9), "name": "KILL"}}, -9),
        ({"status": ["SIGNALED"], "return_code": number(0), "signal": {"signal_id": 9, "name": "KILL"}}, -9),
        (None, None),
    ],
)
def test_the_exit_status_is_read_from_every_format(code: object, status: int | None) -> None:
    assert one(exit_code=code).exit_code == status


@pytest.mark.parametrize(
    ("states", "state"),
    [
        ("PENDING", JobState.QUEUED),
        (["PENDING", "REQUEUED"], JobState.QUEUED),
        ("REQUEUE_HOLD", JobState.QUEUED),
        (["RUNNING"], JobState.RUNNING),
        ("COMPLETING", JobState.RUNNING),
        # Its nodes are not free yet.
        (["FAILED", "COMPLETING"], JobState.RUNNING),
        ("CANCELLED", JobState.ENDED),
        (["NODE_FAIL"], JobState.ENDED),
        ("SUSPENDED", JobState.RUNNING),
        ("A_STATE_OF_NEXT_YEAR", JobState.RUNNING),
    ],
)
def test_only_a_job_in_a_final_state_has_ended(states: object, state: JobState) -> None:
    assert one(job_state=states).state is state


def test_numbers_and_texts_are_read_from_every_format() -> None:
    new = one(submit_time=number(1711533827), restart_cnt=number(2), comment=None, state_reason="BeginTime")
    old = one(submit_time=1711533827, restart_cnt=2, comment="", state_reason="BeginTime")
    assert new == old
    assert one(submit_time=NO_NUMBER).submit_time == 0


@pytest.mark.parametrize(
    "text", ["", "slurm", "[]", "{}", '{"jobs": [{"name": "a"}]}', '{"jobs": [{"job_id": 1, "name": "a", "job_state": 4}]}']
)
def test_an_unknown_format_is_an_error_and_never_a_missing_job(text: str) -> None:
    with pytest.raises(EngineError, match="squeue --json printed an unknown format"):
        read_jobs(text)


def test_an_unreachable_slurmctld_is_an_error_and_not_an_empty_queue() -> None:
    failure = {
        "description": "Failed while looking for jobs",
        "error_number": -1,
        "error": "Unspecified error",
        "source": "slurm_load_jobs",
    }
    with pytest.raises(EngineError, match="squeue failed: Failed while looking for jobs Unspecified error"):
        read_jobs(json.dumps({"errors": [failure], "jobs": []}))
