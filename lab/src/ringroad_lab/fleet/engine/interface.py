"""What an engine is: it carries out jobs, and tells what became of them. What is to be done stands in the store, not here."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from ringroad_lab.errors import LabError
from ringroad_lab.fleet.inventory import Bed
from ringroad_lab.trial import Frozen

PROGRAM = (sys.executable, "-P", "-m", "ringroad_lab.cli.main")


class EngineError(LabError):
    """The engine did not take a job; it may later."""


class JobState(StrEnum):
    """How far a job has come."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    """Nothing of it goes on: it ended, or never began. The store tells which."""


@dataclass(frozen=True)
class JobReport:
    """What an engine knows of a job."""

    state: JobState
    exit_status: int | None = None
    """Of `ringroad-lab`, where the job ended and the engine knows it; negative: the signal."""
    output: str = ""
    """The end of what it said."""
    is_lost: bool = False
    """It ended, or never began, since the engine lost it: no fault of the build."""


@dataclass(frozen=True)
class Job:
    """What an engine is to carry out."""

    name: str
    """Also the id of its run: unlike an engine's number, it is known before the job is."""
    arguments: tuple[str, ...]
    """Of `ringroad-lab`: run or resume, and what follows."""
    beds: Mapping[str, Bed] = field(default_factory=dict)
    """By name, those of which it may have one, rather the first; none: the fleet has no beds but the engine's machine."""


class NoSettings(Frozen):
    """Of an engine that has none of its own."""


@dataclass(frozen=True)
class EngineSettings:
    """What all engines are given."""

    store: str | None = field(repr=False)
    """Location of the result store, for the jobs; None: the user's own."""
    folder: Path
    """Where they may keep what jobs say."""
    program: tuple[str, ...] = PROGRAM
    """How `ringroad-lab` is called."""
    own: Frozen = field(default_factory=NoSettings)
    """The engine's table in `fleet.toml`, of its `settings_type`."""


class Engine(ABC):
    """Carries out jobs. Dispatchers come and go, and a job that one submitted is looked at by another, by key or name."""

    name: ClassVar[str]
    title: ClassVar[str]
    settings_type: ClassVar[type[Frozen]] = NoSettings
    """Of its table `[engine.NAME]` in `fleet.toml`; without one it gets the defaults."""
    is_of_machine: ClassVar[bool] = False
    """Whether its jobs run on the dispatcher's machine, so that none elsewhere can look at them, and are stopped as the dispatcher ends."""
    outlives_dispatchers: ClassVar[bool] = False
    """Whether its jobs go on all the same as the dispatcher ends."""

    def __init__(self, settings: EngineSettings) -> None:
        """Take the settings."""
        self.settings = settings

    def reserve(self) -> bool:
        """Make room for a job, kept until `submit` or `release`; False where there is none."""
        return True

    def release(self) -> None:
        """Give up the room that no job was submitted into."""

    def expected_key(self, name: str) -> str:
        """Return the key that a job of a name will have; empty where that is known only once it is submitted."""
        return ""

    def may_go_on(self, key: str) -> bool:
        """Whether a run that the job of this key began can be gone on with by a new job."""
        return True

    @abstractmethod
    def submit(self, job: Job) -> str:
        """Have a job carried out; return its key.

        Raises:
            EngineError: the engine does not take it now.
        """

    @abstractmethod
    def state(self, key: str) -> JobReport:
        """Return how far a job has come.

        Raises:
            EngineError: the engine cannot tell now.
        """

    @abstractmethod
    def cancel(self, key: str) -> None:
        """Have a job end; at once if it is asked again long after. Its state tells when it has.

        Raises:
            EngineError: the engine cannot be reached now.
        """

    @abstractmethod
    def find(self, name: str) -> str | None:
        """Return the key of a job by its name; None where none is under way.

        Raises:
            EngineError: the engine cannot tell now.
        """
