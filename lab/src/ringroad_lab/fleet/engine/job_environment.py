"""A run as the job of an engine: its dispatcher sets the run id, and sends the notifications."""

from __future__ import annotations

import os

_VARIABLE = "RINGROAD_LAB_JOB"
BED_VARIABLE = "RINGROAD_LAB_BED"
"""Names the bed of a run, as `--bed` does."""
FLEET_VARIABLE = "RINGROAD_LAB_FLEET"
"""Names the file that defines the bed, as `--fleet` does."""


def job_environment(run_id: str) -> dict[str, str]:
    """Return the environment variables of `ringroad-lab run` and `resume` when they run as a job."""
    return {_VARIABLE: run_id}


def job_of_this_process() -> str | None:
    """Return the run id if this process is a job, else None; programs that it starts are not jobs."""
    return os.environ.pop(_VARIABLE, None) or None
