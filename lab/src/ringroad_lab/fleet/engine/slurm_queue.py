"""Slurm as its programs tell of it: the jobs that it knows, and the nodes that take some."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError, field_validator

from ringroad_lab.fleet.engine.interface import EngineError, JobState

# What the programs, and so the jobs, have of this process's environment. Not SBATCH_*, which would be more options.
_ENVIRONMENT = ("HOME", "LANG", "LOGNAME", "PATH", "USER")
# So old may be what is told of all jobs: a dispatcher asks for each of its own. A Slurm that is down takes 9 s to say so.
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
# Of nodes that run jobs, or would. The others, and those that do not answer (*), may stay away for long.
_USABLE = frozenset(["allocated", "completing", "idle", "mixed", "planned", "reserved"])


class SlurmPrograms:
    """Calls Slurm's programs, each within a time."""

    def __init__(self, config: str | None, within_s: float) -> None:
        """Take the configuration, unless it is the usual one, and the time."""
        self._within_s = within_s
        self._environment = {name: os.environ[name] for name in (*_ENVIRONMENT, "SLURM_CONF") if name in os.environ}
        if config:
            self._environment["SLURM_CONF"] = config

    def call(self, *argv: str, **environment: str) -> str:
        """Run a program, with more in its environment; return what it printed.

        Raises:
            EngineError: it failed, is not there, or did not end in time.
        """
        try:
            done = subprocess.run(
                argv,
                env={**self._environment, **environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._within_s,
                check=False,
                # Ctrl-C is the dispatcher's.
                start_new_session=True,
            )
        except subprocess.TimeoutExpired as error:
            raise EngineError(f"Slurm: {argv[0]} did not answer within {self._within_s:g} s: is slurmctld reached?") from error
        except OSError as error:
            raise EngineError(f"Slurm: {argv[0]} cannot be run: {error.strerror}; it is in the package slurm-client") from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()[-1000:]
            raise EngineError(f"Slurm: {argv[0]} failed: {said or f'status {done.returncode}'}")
        return done.stdout.decode(errors="replace")


class QueuedJob(BaseModel):
    """A job, as `squeue --json` has it; versions of Slurm write some values in different ways."""

    job_id: int
    name: str
    comment: str = ""
    job_state: tuple[str, ...]
    """A list since 23.11; a text before, with what is special of the state in place of the state."""
    exit_code: int | None = None
    """Of the batch script; negative: the signal."""
    restart_cnt: int = 0
    submit_time: int = 0
    required_nodes: str = ""
    state_reason: str = ""
    """Why it waits, or ended."""

    @field_validator("job_state", mode="before")
    @classmethod
    def _states(cls, value: Any) -> Any:  # noqa: ANN401
        return value.split(",") if isinstance(value, str) else value

    @field_validator("restart_cnt", "submit_time", mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:  # noqa: ANN401
        return _number(value)

    @field_validator("exit_code", mode="before")
    @classmethod
    def _exit(cls, value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, dict) and "return_code" in value:
            signal = value.get("signal")
            number = _number(signal.get("id", signal.get("signal_id"))) if isinstance(signal, dict) else 0
            return -number if number else _number(value["return_code"])
        # As wait() has it; where there is none, a number that it never has.
        status = _number(value) if value is not None else -1
        return os.waitstatus_to_exitcode(status) if 0 <= status < 1 << 16 and status & 0x7F != 0x7F else None

    @field_validator("comment", "required_nodes", "state_reason", mode="before")
    @classmethod
    def _text(cls, value: Any) -> Any:  # noqa: ANN401
        return value or ""

    @property
    def state(self) -> JobState:
        """How far it has come. One of a state that is not known here is taken for running: nobody begins it anew."""
        states = set(self.job_state)
        if "COMPLETING" in states:
            return JobState.RUNNING
        if states & _WAITING:
            return JobState.QUEUED
        return JobState.ENDED if states & _OVER else JobState.RUNNING


def _number(value: Any) -> int:  # noqa: ANN401
    """A number, or an object that says whether there is one."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) and not value.get("infinite", False) else 0
    return value if isinstance(value, int) else 0


class _Failure(BaseModel):
    description: str = ""
    error: str = ""


class _Answer(BaseModel):
    jobs: list[QueuedJob]
    errors: list[_Failure] = []


def read_jobs(text: str) -> list[QueuedJob]:
    """Read what `squeue --json` printed.

    Raises:
        EngineError: it is no such thing, or squeue did not reach slurmctld, of which its exit status says nothing. A job that was left
            out would be taken for lost.
    """
    try:
        answer = _Answer.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise EngineError(f"Slurm: squeue --json printed what is not known here: {where}: {first['msg']}: {text[:100]!r}") from error
    if answer.errors:
        raise EngineError("Slurm: squeue failed: " + "; ".join(f"{each.description} {each.error}".strip() for each in answer.errors))
    return answer.jobs


class SlurmQueue:
    """The jobs that Slurm knows, by their names; those that ended for as long as its MinJobAge says."""

    def __init__(self, programs: SlurmPrograms) -> None:
        """Take how Slurm is asked."""
        self._programs = programs
        self._asked_at = float("-inf")
        self._jobs: Mapping[str, Sequence[QueuedJob]] = {}
        self._error: EngineError | None = None

    def forget(self) -> None:
        """Have Slurm asked at the next look: what it knows was changed."""
        self._asked_at = float("-inf")

    def jobs(self, name: str) -> Sequence[QueuedJob]:
        """Return those of a name, the one submitted last at the end.

        Raises:
            EngineError: Slurm cannot be asked now.
        """
        return self._all().get(name, ())

    def waiting(self) -> int:
        """Return how many wait that dispatchers submitted: they, and no others, have their name as comment too.

        Raises:
            EngineError: Slurm cannot be asked now.
        """
        return sum(job.state is JobState.QUEUED and job.comment == name for name, jobs in self._all().items() for job in jobs)

    def _all(self) -> Mapping[str, Sequence[QueuedJob]]:
        if time.monotonic() - self._asked_at > (_FRESH_ERROR_S if self._error else _FRESH_S):
            self._jobs, self._error = {}, None
            try:
                self._jobs = self._ask()
            except EngineError as error:
                self._error = error
            self._asked_at = time.monotonic()
        if self._error:
            raise EngineError(str(self._error)) from self._error
        return self._jobs

    def _ask(self) -> Mapping[str, Sequence[QueuedJob]]:
        # Up to 22.05 squeue leaves out what narrows --json.
        found: dict[str, list[QueuedJob]] = {}
        for job in sorted(read_jobs(self._programs.call("squeue", "--states=all", "--json")), key=lambda job: job.submit_time):
            found.setdefault(job.name, []).append(job)
        return found


def usable_nodes(programs: SlurmPrograms, nodes: Collection[str]) -> set[str]:
    """Return those of some nodes that take jobs: not down, not drained.

    Raises:
        EngineError: Slurm cannot be asked now.
    """
    told = programs.call("sinfo", "--noheader", "--Node", f"--nodes={','.join(sorted(nodes))}", "--format=%N %T")
    usable = set()
    for line in told.splitlines():
        node, _, state = line.partition(" ")
        if state.rstrip("~#!%$@^+-") in _USABLE:
            usable.add(node)
    return usable
