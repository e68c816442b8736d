"""Test setups and stations with real programs, sampled while they are up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager

from ringroad_lab.cost import CostMeter
from ringroad_lab.dut.interface import Dut, Placement
from ringroad_lab.errors import DutError
from ringroad_lab.facts.sampler import Sampler
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.generator.interface import Generator
from ringroad_lab.host.interface import Host
from ringroad_lab.host.local import LocalHost
from ringroad_lab.host.ssh import SshHost
from ringroad_lab.message_size.station import Station
from ringroad_lab.message_size.sweep import STATIONS, joined_stations, station_cable, sweep_message_sizes
from ringroad_lab.method.interface import MethodSettings
from ringroad_lab.method.message_size import MessageSizeSettings
from ringroad_lab.record import DutRecord, GeneratorCeiling, LogExcerpt, Outcome, Series, StepRecord
from ringroad_lab.run.events import CeilingFound, Event, HugePagesNeeded, SelfTestFailed, StepNamed
from ringroad_lab.run.interface import SampledSetup, Stations
from ringroad_lab.sandbox.huge_pages import await_huge_pages
from ringroad_lab.scenario.cpu_layout import CpuLayout, lay_out_cpus
from ringroad_lab.scenario.library import LOCAL_HOST
from ringroad_lab.scenario.model import DutChoice, Scenario, StepChoice
from ringroad_lab.setup.ceilings import Ceilings
from ringroad_lab.setup.drivers import find_dut, huge_pages_mib, read_settings, with_build
from ringroad_lab.setup.dut_record import dut_record
from ringroad_lab.setup.test_setup import TestSetup
from ringroad_lab.trial import FlowSet

# A log explains a failure, and must not fill the store.
_LOG_CHARACTERS = 16_384


class Samples:
    """The samples and logs of a device and its peers, with the device's label."""

    def __init__(self, label: str, sampler: Sampler, logs: Callable[[], Sequence[LogExcerpt]]) -> None:
        """Take the running sampler, and the function that returns the programs' logs."""
        self._label = label
        self._sampler = sampler
        self._logs = logs

    def samples(self) -> Sequence[Series]:
        """Return the samples."""
        return [series.model_copy(update={"subject": f"{self._label}: {series.subject}"}) for series in self._sampler.series()]

    def warnings(self) -> Sequence[str]:
        """Return the reasons to doubt the measurements."""
        return self._sampler.warnings()

    def logs(self) -> Sequence[LogExcerpt]:
        """Return the end of the programs' output."""
        return [
            LogExcerpt(
                source=f"{self._label}: {log.source}",
                text=log.text[-_LOG_CHARACTERS:],
                is_cut=log.is_cut or len(log.text) > _LOG_CHARACTERS,
            )
            for log in self._logs()
        ]


class RealSetup(Samples, SampledSetup):
    """A test setup whose processes are sampled."""

    def __init__(self, setup: TestSetup, sampler: Sampler) -> None:
        """Take a running setup and sampler."""
        super().__init__(setup.choice.label, sampler, setup.logs)
        self._setup = setup

    @property
    def generator(self) -> Generator:
        """The generator of the load."""
        return self._setup.generator

    def generator_version(self) -> str:
        """Return the generator's name and version."""
        return self._setup.generator_version()

    def record(self) -> DutRecord:
        """Return the record of the device."""
        return self._setup.record()

    def ceiling(self, frame: FrameMix) -> GeneratorCeiling | None:
        """Return the generator's ceiling."""
        return self._setup.ceiling(frame)

    def run_test_step(self, step: StepChoice, environment: Mapping[str, str]) -> StepRecord:
        """Run a test step on its host."""
        return self._setup.run_test_step(step, environment)

    def check(self) -> None:
        """Check that all parts are alive."""
        self._setup.check()

    @property
    def costs(self) -> CostMeter:
        """Measures the processor time of the device."""
        return self._setup.costs

    def install_flows(self, flow_set: FlowSet | None) -> float:
        """Put the entries of a flow set into the device's flow table."""
        return self._setup.install_flows(flow_set)

    def collect(self) -> dict[str, int]:
        """Return the device's counters."""
        return self._setup.collect()


class RealStations(Samples, Stations):
    """Two stations of this machine, joined by a device."""

    def __init__(
        self,
        choice: DutChoice,
        dut: Dut,
        stations: tuple[Station, Station],
        settings: MessageSizeSettings,
        sampler: Sampler,
        on_step: Callable[[str], None],
    ) -> None:
        """Take the running device, stations and sampler."""
        super().__init__(choice.label, sampler, lambda: [*dut.logs(), *(log for station in stations for log in station.logs())])
        self._choice = choice
        self._dut = dut
        self._stations = stations
        self._settings = settings
        self._on_step = on_step

    def record(self) -> DutRecord:
        """Return the record of the device."""
        versions = self._dut.versions()
        for station in self._stations:
            versions |= station.versions()
        ports = self._dut.port_modes() | {"stations": self._stations[0].title}
        return dut_record(self._choice, self._dut, self._stations, versions, ports)

    def measure(self) -> Outcome:
        """Sweep message sizes between the stations."""
        return sweep_message_sizes(self._dut, self._stations, self._settings, self._on_step)

    def collect(self) -> dict[str, int]:
        """Return the device's counters."""
        return self._dut.collect()


def _name(part: str, process: str) -> str:
    return process if process == part else f"{part} {process}"


class RealSetups:
    """Makes test setups; all share the results of the generator's self-tests."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        """Take the callback for events."""
        self._emit = emit
        self._ceilings = Ceilings(
            on_found=lambda ceiling: emit(CeilingFound(ceiling=ceiling)), on_failed=lambda text: emit(SelfTestFailed(text=text))
        )

    @contextmanager
    def make(self, scenario: Scenario, choice: DutChoice) -> Iterator[SampledSetup]:
        """Build a test setup, and take it down at the end of the block.

        Raises:
            LabError: the setup could not be built.
        """
        host = None if choice.host == LOCAL_HOST else self._reach(scenario, choice.host)
        try:
            setup = TestSetup(
                scenario,
                choice,
                ceilings=self._ceilings,
                dut_host=host,
                on_step=lambda step: self._emit(StepNamed(text=f"{choice.label}: {step}")),
                reserve_memory=lambda: self._await_huge_pages(scenario, choice),
            )
            with setup:
                # Process ids of another machine mean nothing here.
                processes = {} if host else {p.pid: _name(part, p.name) for part, members in setup.processes().items() for p in members}
                with Sampler(processes) as sampler:
                    yield RealSetup(setup, sampler)
        finally:
            if host is not None:
                host.close()

    @contextmanager
    def make_stations(self, scenario: Scenario, choice: DutChoice, settings: MethodSettings) -> Iterator[Stations]:
        """Join two stations of this machine by a device, and take everything down at the end of the block.

        Raises:
            LabError: the stations could not be built, or the device is on another machine.
        """
        assert isinstance(settings, MessageSizeSettings)
        if choice.host != LOCAL_HOST:
            raise DutError(f"{choice.label} is on {choice.host}: message sizes are measured on this machine only")
        dut_type = find_dut(choice.driver)
        kind = station_cable(dut_type, settings)
        usable = os.sched_getaffinity(0)
        cpus = lay_out_cpus(scenario.cpus, usable, 1, 0)
        host = LocalHost()

        def on_step(step: str) -> None:
            self._emit(StepNamed(text=f"{choice.label}: {step}"))

        try:
            self._await_huge_pages(scenario, choice)
            label = f"dut.{choice.label}"
            placement = with_build(
                Placement(host, cpus.dut, huge_pages=scenario.huge_pages), choice.build, dut_type.build_programs, f"{label}.build"
            )
            dut = dut_type(read_settings(choice), placement)
            programs = STATIONS[settings.stations].build_programs
            guest_build = choice.guest_build if programs else None
            station_cpus = _station_cpus(settings, scenario, cpus, usable)
            placements = [with_build(Placement(host, used), guest_build, programs, f"{label}.guest_build") for used in station_cpus]
            with joined_stations(dut, kind, settings, (placements[0], placements[1]), on_step) as stations:
                parts = {"dut": dut.processes(), **{station.name: station.processes() for station in stations}}
                with Sampler({p.pid: _name(part, p.name) for part, members in parts.items() for p in members}) as sampler:
                    yield RealStations(choice, dut, stations, settings, sampler, on_step)
        finally:
            host.close()

    def _await_huge_pages(self, scenario: Scenario, choice: DutChoice) -> None:
        """Wait for the huge pages that a device needs; another program can have taken them since the run started."""
        if choice.host == LOCAL_HOST and (mib := huge_pages_mib(scenario, choice)):
            await_huge_pages(mib, lambda: self._emit(HugePagesNeeded(mib=mib)))

    def _reach(self, scenario: Scenario, name: str) -> Host:
        place = next(host for host in scenario.hosts if host.name == name)
        return SshHost(place)


def _station_cpus(settings: MessageSizeSettings, scenario: Scenario, cpus: CpuLayout, usable: Set[int]) -> tuple[frozenset[int], ...]:
    """Assign processors to stations.

    Namespaces get the generator's processors. Guests get all but the device's; each guest gets its own if there are at least two.
    """
    if settings.stations == "namespaces":
        return cpus.generator, cpus.generator
    pool = sorted(scenario.cpus.guests or usable - cpus.dut or usable)
    return frozenset(pool[::2]), frozenset(pool[1::2] or pool)
