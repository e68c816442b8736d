"""A run as the job of an engine: who asked for it knows its id beforehand, and tells of its end."""

from __future__ import annotations

import os

_VARIABLE = "RINGROAD_LAB_JOB"
BED_VARIABLE = "RINGROAD_LAB_BED"
"""Names the bed of a run, as `--bed` does."""
FLEET_VARIABLE = "RINGROAD_LAB_FLEET"
"""Names the file that has the bed, as `--fleet` does."""


def job_environment(run_id: str) -> dict[str, str]:
    """Return what `ringroad-lab run` and `resume` have in their environment where they are a job."""
    return {_VARIABLE: run_id}


def job_of_this_process() -> str | None:
    """Return the id of the run that this process is to make as a job; None where it is none. Programs started from here are none."""
    return os.environ.pop(_VARIABLE, None) or None
