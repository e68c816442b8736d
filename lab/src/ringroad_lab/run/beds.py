"""Test beds for the engine: real ones, sampled while they are up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ringroad_lab.cable.interface import CableKind
from ringroad_lab.cost import CostMeter
from ringroad_lab.cpu_layout import lay_out_cpus
from ringroad_lab.dut.interface import Placement
from ringroad_lab.errors import DutError
from ringroad_lab.facts.sampler import Sampler
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.generator.interface import Generator
from ringroad_lab.host.interface import Host
from ringroad_lab.host.local import LocalHost
from ringroad_lab.host.ssh import SshHost
from ringroad_lab.message_size.sweep import sweep_message_sizes
from ringroad_lab.method.interface import MethodSettings
from ringroad_lab.method.message_size import MessageSizeSettings
from ringroad_lab.record import DutRecord, GeneratorCeiling, LogExcerpt, Outcome, Series
from ringroad_lab.run.engine import Bed, Stations
from ringroad_lab.run.events import Event, StepNamed
from ringroad_lab.scenario.library import LOCAL_HOST
from ringroad_lab.scenario.model import DutChoice, Scenario
from ringroad_lab.testbed import Ceilings, TestBed, find_dut, read_settings

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

    @property
    def costs(self) -> CostMeter:
        """What tells the processor time of the device."""
        return self._bed.costs

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


class RealStations(Stations):
    """Network namespaces of this machine, and a device between them."""

    def __init__(self, scenario: Scenario, choice: DutChoice, host: Host, on_step: Callable[[str], None]) -> None:
        """Prepare the device.

        Raises:
            LabError: what is missing.
        """
        cpus = lay_out_cpus(scenario.cpus, os.sched_getaffinity(0), 1, 0)
        self._settings = read_settings(choice)
        self._dut = find_dut(choice.driver)(self._settings, Placement(host, cpus.dut, huge_pages=scenario.huge_pages))
        self._dut.prepare()
        self._choice = choice
        self._host = host
        self._station_cpus = cpus.generator
        self._on_step = on_step

    def record(self) -> DutRecord:
        """Return the device as it is."""
        return DutRecord(
            label=self._choice.label,
            driver=self._choice.driver,
            settings=self._settings.model_dump(mode="json"),
            versions=self._dut.versions(),
            ports={"stations": str(CableKind.VETH)},
        )

    def measure(self, settings: MethodSettings) -> Outcome:
        """Sweep message sizes between the stations."""
        assert isinstance(settings, MessageSizeSettings)
        return sweep_message_sizes(self._host, self._dut, settings, station_cpus=self._station_cpus, on_step=self._on_step)


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

    @contextmanager
    def make_stations(self, scenario: Scenario, choice: DutChoice) -> Iterator[Stations]:
        """Prepare a device that is to join two stations of this machine.

        Raises:
            LabError: what is missing, or the device is elsewhere.
        """
        if choice.host != LOCAL_HOST:
            raise DutError(f"{choice.label} is on {choice.host}: message sizes are measured on this machine only")
        host = LocalHost()
        try:
            yield RealStations(scenario, choice, host, lambda step: self._tell(StepNamed(text=f"{choice.label}: {step}")))
        finally:
            host.close()

    def _reach(self, scenario: Scenario, name: str) -> Host:
        place = next(host for host in scenario.hosts if host.name == name)
        return SshHost(place)
