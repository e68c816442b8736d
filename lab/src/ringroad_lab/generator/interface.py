"""The methods' interface to a generator, and the lab's interface to a generator driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ringroad_lab.cable.interface import Cable, CableKind
from ringroad_lab.facts.witness import Witness
from ringroad_lab.host.interface import Host, Process
from ringroad_lab.kinds import Kinds
from ringroad_lab.record import GeneratorCeiling, LogExcerpt
from ringroad_lab.trial import Frozen, Load, TrialRequest, TrialResult


class Generator(ABC):
    """Offers loads to the device under test, one trial after the other, and counts the frames that it forwards."""

    @abstractmethod
    def trial(self, request: TrialRequest) -> TrialResult:
        """Offer a load, wait for the last frames, and count.

        Raises:
            GeneratorError: the trial failed. A load that the generator could not carry gives an invalid result instead.
        """

    @abstractmethod
    def version(self) -> str:
        """Return name and version, for the facts of a run."""


class WrappedGenerator(Generator):
    """A generator that does more around each trial of another."""

    def __init__(self, generator: Generator) -> None:
        """Take the other generator."""
        self._generator = generator

    def version(self) -> str:
        """Return name and version."""
        return self._generator.version()


class GeneratorSettings(Frozen):
    """Settings of a generator; each driver has its own."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether it runs independently of the lab, perhaps on another machine: a run's private namespaces would hide it."""
        return False


class GeneratorDriver(ABC):
    """Controls a generator and its two ports. Created, prepared, started, plugged in and stopped, in that order."""

    title: ClassVar[str]
    """Title for users."""
    settings_type: ClassVar[type[GeneratorSettings]] = GeneratorSettings
    can_run_twice: ClassVar[bool] = False
    """Whether a second instance can be started, to measure the ceiling again while the ports of the first are plugged in."""

    witness: Witness | None = None
    """Measures how much of the run's processors other processes use while a load is offered; set before the generator is plugged in."""

    def __init__(self, settings: GeneratorSettings, host: Host, cpus: frozenset[int]) -> None:
        """Take validated settings of type `settings_type`, the lab's machine, and the generator's processors on that machine."""
        self.settings = settings
        self.host = host
        self.cpus = cpus

    @classmethod
    def reaches(cls, kind: CableKind, settings: GeneratorSettings) -> bool:
        """Return whether it can have ports at the far ends of such cables."""
        return True

    def prepare(self) -> None:
        """Check that everything it needs is available.

        Raises:
            MissingProgramError: names the Debian package.
            GeneratorError: it cannot be used here.
        """

    @abstractmethod
    def start(self) -> None:
        """Start the generator, or connect to it.

        Raises:
            GeneratorError: it does not start, or does not respond.
        """

    @abstractmethod
    def plug_in(self, cables: tuple[Cable, Cable]) -> Generator:
        """Open its ports at the far ends of two cables, without traffic, so that the other ends can connect.

        Raises:
            GeneratorError: a port cannot be opened.
        """

    @abstractmethod
    def version(self) -> str:
        """Return name and version."""

    def ceiling(self, kind: CableKind, load: Load) -> GeneratorCeiling | None:
        """Return the greatest load with these frames and flows that it carries by itself; None if it cannot measure that.

        Raises:
            GeneratorError: it carries nothing.
        """
        return None

    def port_modes(self) -> Mapping[str, str]:
        """Return the mode of each port, if the generator reports the modes."""
        return {}

    def check(self) -> None:
        """Check that the generator is alive.

        Raises:
            GeneratorError: the generator has ended; the message has its last output.
        """

    def processes(self) -> Sequence[Process]:
        """Return its processes, if the lab started any."""
        return ()

    def logs(self) -> Sequence[LogExcerpt]:
        """Return the output of its programs."""
        return [LogExcerpt(source=process.name, text=process.output()) for process in self.processes()]

    def stop(self) -> None:
        """Stop all started programs, and disconnect; can be called at any point, any number of times."""


GENERATORS: Kinds[GeneratorDriver] = Kinds(
    "ringroad_lab.generators",
    GeneratorDriver,
    {
        "ringroad": "generator.ringroad:RingroadGenerator",
        "otg": "generator.otg_server:OtgServer",
        "trex": "generator.trex:TrexServer",
    },
)
