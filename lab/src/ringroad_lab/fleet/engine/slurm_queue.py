"""Queries Slurm with its command line programs: its jobs, and the nodes that accept jobs."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ValidationError, field_validator

from ringroad_lab.fleet.engine.interface import EngineError, JobState
from ringroad_lab.grouping import grouped

# Variables of this process that the programs, and so the jobs, inherit. Not SBATCH_*, which would add options.
_ENVIRONMENT = ("HOME", "LANG", "LOGNAME", "PATH", "USER")
# Maximum age of the cached queue: a dispatcher queries each of its jobs. If Slurm is down, a query takes 9 s to fail.
_FRESH_S = 1.0
_FRESH_ERROR_S = 5.0
_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
_OVER = frozenset(
    [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "RECONFIG_FAIL",
        "REVOKED",
        "TIMEOUT",
    ]
)
# States of nodes that accept jobs. Other nodes, and nodes that do not respond (*), may be unavailable for long.
_USABLE = frozenset(["allocated", "completing", "idle", "mixed", "planned", "reserved"])


class SlurmPrograms:
    """Calls Slurm's programs with a time limit."""

    def __init__(self, config: str | None, within_s: float) -> None:
        """Take the configuration file (None: the default one) and the time limit."""
        self._within_s = within_s
        self._environment = {name: os.environ[name] for name in (*_ENVIRONMENT, "SLURM_CONF") if name in os.environ}
        if config:
            self._environment["SLURM_CONF"] = config

    def call(self, *argv: str, **environment: str) -> str:
        """Run a program with additional environment variables; return its output.

        Raises:
            EngineError: the program failed, does not exist, or did not end in time.
        """
        try:
            done = subprocess.run(
                argv,
                env={**self._environment, **environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._within_s,
                check=False,
                # Ctrl-C goes to the dispatcher only.
                start_new_session=True,
            )
        except subprocess.TimeoutExpired as error:
            raise EngineError(f"Slurm: {argv[0]} did not answer within {self._within_s:g} s: is slurmctld reachable?") from error
        except OSError as error:
            raise EngineError(f"Slurm: {argv[0]} cannot be run: {error.strerror}; it is in the package slurm-client") from error
        if done.returncode:
            message = done.stderr.decode(errors="replace").strip()[-1000:]
            raise EngineError(f"Slurm: {argv[0]} failed: {message or f'status {done.returncode}'}")
        return done.stdout.decode(errors="replace")


def _number(value: Any) -> int:  # noqa: ANN401
    """Return the number of a value: a plain number, or an object that states whether its number is set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) and not value.get("infinite", False) else 0
    return value if isinstance(value, int) else 0


# Values that squeue gives in several forms.
_Number = Annotated[int, BeforeValidator(_number)]
_Text = Annotated[str, BeforeValidator(lambda value: value or "")]
_Words = Annotated[tuple[str, ...], BeforeValidator(lambda value: value.split(",") if isinstance(value, str) else value)]


class QueuedJob(BaseModel):
    """A job from `squeue --json`; the format of some values depends on the version of Slurm."""

    job_id: int
    name: str
    comment: _Text = ""
    job_state: _Words
    """A list since 23.11; before that a string, in which a flag such as COMPLETING replaces the state."""
    exit_code: int | None = None
    """Exit status of the batch script; negative: the signal."""
    restart_cnt: _Number = 0
    submit_time: _Number = 0
    required_nodes: _Text = ""
    state_reason: _Text = ""
    """Reason why the job waits, or why it ended."""

    @field_validator("exit_code", mode="before")
    @classmethod
    def _exit(cls, value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, dict) and "return_code" in value:
            signal = value.get("signal")
            number = _number(signal.get("id", signal.get("signal_id"))) if isinstance(signal, dict) else 0
            return -number if number else _number(value["return_code"])
        # A wait() status; without a status, a value that wait() never returns.
        status = _number(value) if value is not None else -1
        return os.waitstatus_to_exitcode(status) if 0 <= status < 1 << 16 and status & 0x7F != 0x7F else None

    @property
    def state(self) -> JobState:
        """State of the job. An unknown state counts as running, so that the job is not submitted again."""
        states = set(self.job_state)
        if "COMPLETING" in states:
            return JobState.RUNNING
        if states & _WAITING:
            return JobState.QUEUED
        return JobState.ENDED if states & _OVER else JobState.RUNNING


class _Failure(BaseModel):
    description: str = ""
    error: str = ""


class _SqueueAnswer(BaseModel):
    jobs: list[QueuedJob]
    errors: list[_Failure] = []


def read_jobs(text: str) -> list[QueuedJob]:
    """Read the output of `squeue --json`.

    Raises:
        EngineError: the output is invalid, or reports that squeue did not reach slurmctld, which the exit status does not show. A missing
            job would count as lost.
    """
    try:
        answer = _SqueueAnswer.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise EngineError(f"Slurm: squeue --json printed an unknown format: {where}: {first['msg']}: {text[:100]!r}") from error
    if answer.errors:
        raise EngineError("Slurm: squeue failed: " + "; ".join(f"{each.description} {each.error}".strip() for each in answer.errors))
    return answer.jobs


class SlurmQueue:
    """Jobs that Slurm knows, by name. Slurm keeps ended jobs for its MinJobAge."""

    def __init__(self, programs: SlurmPrograms) -> None:
        """Take the programs that query Slurm."""
        self._programs = programs
        self._queried_at = float("-inf")
        self._jobs: Mapping[str, Sequence[QueuedJob]] = {}
        self._error: EngineError | None = None

    def forget(self) -> None:
        """Discard the cache after a change in Slurm."""
        self._queried_at = float("-inf")

    def jobs(self, name: str) -> Sequence[QueuedJob]:
        """Return the jobs of this name in the order of their submission.

        Raises:
            EngineError: Slurm cannot be queried now.
        """
        return self._all().get(name, ())

    def waiting(self) -> int:
        """Return the number of waiting jobs from dispatchers: only these jobs have their name also as comment.

        Raises:
            EngineError: Slurm cannot be queried now.
        """
        return sum(job.state is JobState.QUEUED and job.comment == name for name, jobs in self._all().items() for job in jobs)

    def _all(self) -> Mapping[str, Sequence[QueuedJob]]:
        if time.monotonic() - self._queried_at > (_FRESH_ERROR_S if self._error else _FRESH_S):
            self._jobs, self._error = {}, None
            try:
                self._jobs = self._query()
            except EngineError as error:
                self._error = error
            self._queried_at = time.monotonic()
        if self._error:
            raise EngineError(str(self._error)) from self._error
        return self._jobs

    def _query(self) -> Mapping[str, Sequence[QueuedJob]]:
        # squeue --json ignores options that select jobs up to 22.05.
        jobs = read_jobs(self._programs.call("squeue", "--states=all", "--json"))
        return grouped(sorted(jobs, key=lambda job: job.submit_time), lambda job: job.name)


def usable_nodes(programs: SlurmPrograms, nodes: Collection[str]) -> set[str]:
    """Return the nodes that accept jobs: not down, not drained.

    Raises:
        EngineError: Slurm cannot be queried now.
    """
    listing = programs.call("sinfo", "--noheader", "--Node", f"--nodes={','.join(sorted(nodes))}", "--format=%N %T")
    usable = set()
    for line in listing.splitlines():
        node, _, state = line.partition(" ")
        if state.rstrip("~#!%$@^+-") in _USABLE:
            usable.add(node)
    return usable
