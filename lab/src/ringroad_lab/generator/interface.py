"""The methods' interface to a generator, and the lab's interface to what has one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.facts.witness import Witness
from ringroad_lab.host.interface import Host, Process
from ringroad_lab.record import GeneratorCeiling, LogExcerpt
from ringroad_lab.trial import Load, TrialRequest, TrialResult


class Generator(ABC):
    """Offers loads to the device under test, one trial after the other, and counts what it forwards."""

    @abstractmethod
    def trial(self, request: TrialRequest) -> TrialResult:
        """Offer a load, wait for the last frames, count.

        Raises:
            GeneratorError: it could not be done at all. A load that could not be carried gives an invalid result instead.
        """

    @abstractmethod
    def version(self) -> str:
        """Return name and version, for the facts of a run."""


class GeneratorSettings(BaseModel):
    """What can be set of a generator; each driver has its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    def is_elsewhere(self) -> bool:
        """Whether it runs without the lab, on another machine perhaps: a run's private namespaces would hide it."""
        return False


class GeneratorDriver(ABC):
    """What has a generator's two ports. Made, prepared, started, plugged in, stopped; in that order."""

    driver: ClassVar[str]
    """As scenarios name it."""
    title: ClassVar[str]
    """For people."""
    settings_type: ClassVar[type[GeneratorSettings]] = GeneratorSettings
    can_run_twice: ClassVar[bool] = False
    """Whether a second one can be started beside it, to tell its ceiling again while the ports of the first are plugged in."""

    witness: Witness | None = None
    """Who tells what others take of the run's processors while a load is offered; set before it is plugged in."""

    def __init__(self, settings: GeneratorSettings, host: Host, cpus: frozenset[int]) -> None:
        """Take checked settings, of `settings_type`, the machine of the lab, and the processors that are a generator's there."""
        self.settings = settings
        self.host = host
        self.cpus = cpus

    @classmethod
    def reaches(cls, kind: CableKind, settings: GeneratorSettings) -> bool:
        """Say whether it has ports at the far ends of such cables."""
        return True

    def prepare(self) -> None:
        """Look for all that it needs.

        Raises:
            MissingProgramError: names the Debian package.
            GeneratorError: it cannot be used here.
        """

    @abstractmethod
    def start(self) -> None:
        """Start it, or reach it.

        Raises:
            GeneratorError: it does not start, or does not answer.
        """

    @abstractmethod
    def plug_in(self, cables: tuple[Cable, Cable]) -> Generator:
        """Open its ports at the far ends of two cables, without traffic, so that whoever is at the other ends finds them.

        Raises:
            GeneratorError: one cannot be opened.
        """

    @abstractmethod
    def version(self) -> str:
        """Return name and version."""

    def ceiling(self, kind: CableKind, load: Load) -> GeneratorCeiling | None:
        """Return what it carries by itself of frames and flows like those of a load; None where it cannot tell.

        Raises:
            GeneratorError: it carries nothing.
        """
        return None

    def port_modes(self) -> Mapping[str, str]:
        """Return how its ports are served, where it tells that."""
        return {}

    def check(self) -> None:
        """Check that it lives.

        Raises:
            GeneratorError: with what it said last.
        """

    def processes(self) -> Sequence[Process]:
        """Return its processes, where the lab started any."""
        return ()

    def logs(self) -> Sequence[LogExcerpt]:
        """Return what its programs said."""
        return [LogExcerpt(source=process.name, text=process.output()) for process in self.processes()]

    def stop(self) -> None:
        """End what was started, and leave; possible at any point, any number of times."""
