"""The interface of an engine: it runs jobs and reports their state. The store, not the engine, decides which jobs run."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from ringroad_lab.errors import LabError
from ringroad_lab.fleet.inventory import BedSettings
from ringroad_lab.kinds import Kinds
from ringroad_lab.trial import Frozen

PROGRAM = (sys.executable, "-P", "-m", "ringroad_lab.cli.main")


class EngineError(LabError):
    """The engine failed to accept or query a job; a later try may succeed."""


class JobState(StrEnum):
    """State of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    """The job ended or never started; the store shows which."""


@dataclass(frozen=True)
class JobReport:
    """State of a job, as the engine reports it."""

    state: JobState
    exit_status: int | None = None
    """Exit status of `ringroad-lab`, if the job ended and the engine knows the status; negative: the signal."""
    output: str = ""
    """The end of the job's output."""
    is_lost: bool = False
    """The engine lost the job, so it ended or never started: this is no failure of the build."""


@dataclass(frozen=True)
class Job:
    """A job for an engine."""

    name: str
    """The id of its run. Unlike an engine's job number, the name is known before the submission."""
    arguments: tuple[str, ...]
    """Arguments of `ringroad-lab`: run or resume, and its arguments."""
    beds: Mapping[str, BedSettings] = field(default_factory=dict)
    """Beds that the job can use, by name, in order of preference; empty: the fleet has no beds, only the engine's machine."""


class NoSettings(Frozen):
    """Settings type of an engine without settings of its own."""


@dataclass(frozen=True)
class EngineSettings:
    """Settings that all engines get."""

    store: str | None = field(repr=False)
    """Location of the result store, for the jobs; None: the user's own."""
    folder: Path
    """Folder in which engines can keep the output of jobs."""
    program: tuple[str, ...] = PROGRAM
    """Command of `ringroad-lab`."""
    own: Frozen = field(default_factory=NoSettings)
    """The engine's table in `fleet.toml`, as its `settings_type`."""


class Engine(ABC):
    """Runs jobs. Dispatchers start and stop; a dispatcher can query a job of another one by key or name."""

    title: ClassVar[str]
    settings_type: ClassVar[type[Frozen]] = NoSettings
    """Type of its table `[engine.NAME]` in `fleet.toml`; without the table, the engine gets the defaults."""
    is_of_machine: ClassVar[bool] = False
    """Whether jobs run on the dispatcher's machine. Other machines cannot query them, and they stop when the dispatcher ends."""
    outlives_dispatchers: ClassVar[bool] = False
    """Whether jobs of the dispatcher's machine nevertheless continue when the dispatcher ends."""

    def __init__(self, settings: EngineSettings) -> None:
        """Take the settings."""
        self.settings = settings

    def reserve(self) -> bool:
        """Reserve room for a job until `submit` or `release`; return False if there is none."""
        return True

    def release(self) -> None:
        """Release the reserved room if no job was submitted."""

    def expected_key(self, name: str) -> str:
        """Return the key that a job of this name will have; empty if the key is known only after the submission."""
        return ""

    def may_go_on(self, key: str) -> bool:
        """Return whether a new job can resume the run that the job of this key began."""
        return True

    @abstractmethod
    def submit(self, job: Job) -> str:
        """Submit a job; return its key.

        Raises:
            EngineError: the engine does not accept the job now.
        """

    @abstractmethod
    def state(self, key: str) -> JobReport:
        """Return the state of a job.

        Raises:
            EngineError: the engine cannot be queried now.
        """

    @abstractmethod
    def cancel(self, key: str) -> None:
        """Request the end of a job; a repeated call much later ends it at once. `state` reports when it has ended.

        Raises:
            EngineError: the engine cannot be reached now.
        """

    @abstractmethod
    def find(self, name: str) -> str | None:
        """Return the key of an active job by its name; None if there is none.

        Raises:
            EngineError: the engine cannot be queried now.
        """


ENGINES: Kinds[Engine] = Kinds(
    "ringroad_lab.engines",
    Engine,
    {
        "local": "fleet.engine.local:LocalEngine",
        "slurm": "fleet.engine.slurm:SlurmEngine",
        "beaker": "fleet.engine.beaker.engine:BeakerEngine",
        "tmt": "fleet.engine.tmt:TmtEngine",
    },
)
