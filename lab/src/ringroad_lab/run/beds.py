"""Test beds for the engine: real ones, watched while they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ringroad_lab.facts.sampler import Sampler
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.generator.interface import Generator
from ringroad_lab.host.interface import Host
from ringroad_lab.host.ssh import SshHost
from ringroad_lab.record import DutRecord, GeneratorCeiling, LogExcerpt, Series
from ringroad_lab.run.engine import Bed
from ringroad_lab.run.events import Event, StepNamed
from ringroad_lab.scenario.library import LOCAL_HOST
from ringroad_lab.scenario.model import DutChoice, Scenario
from ringroad_lab.testbed import Ceilings, TestBed

# A log is to explain a failure, not to fill a store.
_LOG_CHARACTERS = 16_384


class WatchedBed(Bed):
    """A test bed, and who watches its processes."""

    def __init__(self, bed: TestBed, sampler: Sampler) -> None:
        """Take both, at work."""
        self._bed = bed
        self._sampler = sampler

    @property
    def generator(self) -> Generator:
        """What offers the load."""
        return self._bed.generator

    def generator_version(self) -> str:
        """Return the generator's name and version."""
        return self._bed.generator_version()

    def record(self) -> DutRecord:
        """Return the device as it is."""
        return self._bed.record()

    def ceiling(self, frame: FrameMix) -> GeneratorCeiling | None:
        """Return what the generator carries by itself."""
        return self._bed.ceiling(frame)

    def check(self) -> None:
        """Check that all parts live."""
        self._bed.check()

    def collect(self) -> dict[str, int]:
        """Return what the device counted."""
        return self._bed.collect()

    def watched(self) -> Sequence[Series]:
        """Return what was watched."""
        label = self._bed.choice.label
        return [series.model_copy(update={"subject": f"{label}: {series.subject}"}) for series in self._sampler.series()]

    def warnings(self) -> Sequence[str]:
        """Return what speaks against the measurements."""
        return self._sampler.warnings()

    def logs(self) -> Sequence[LogExcerpt]:
        """Return the end of what the programs said."""
        label = self._bed.choice.label
        return [
            LogExcerpt(
                source=f"{label}: {log.source}",
                text=log.text[-_LOG_CHARACTERS:],
                is_cut=log.is_cut or len(log.text) > _LOG_CHARACTERS,
            )
            for log in self._bed.logs()
        ]


def _name(part: str, process: str) -> str:
    return process if process == part else f"{part} {process}"


class Beds:
    """Makes test beds; what one finds out about the generator the next ones need not."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        """Take where events go."""
        self._tell = tell
        self._ceilings: Ceilings = {}

    @contextmanager
    def make(self, scenario: Scenario, choice: DutChoice) -> Iterator[Bed]:
        """Build a bed, and take it down.

        Raises:
            LabError: what could not be built, and why.
        """
        host = None if choice.host == LOCAL_HOST else self._reach(scenario, choice.host)
        try:
            bed = TestBed(
                scenario,
                choice,
                ceilings=self._ceilings,
                dut_host=host,
                on_step=lambda step: self._tell(StepNamed(text=f"{choice.label}: {step}")),
            )
            with bed:
                # Processes of another machine have their numbers there.
                processes = {} if host else {p.pid: _name(part, p.name) for part, members in bed.processes().items() for p in members}
                with Sampler(processes) as sampler:
                    yield WatchedBed(bed, sampler)
        finally:
            if host is not None:
                host.close()

    def _reach(self, scenario: Scenario, name: str) -> Host:
        place = next(host for host in scenario.hosts if host.name == name)
        return SshHost(place)
