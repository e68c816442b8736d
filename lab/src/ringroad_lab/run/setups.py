"""Test setups and stations with real programs, sampled while they are up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from ringroad_lab.dut.interface import Dut, Placement
from ringroad_lab.errors import DutError
from ringroad_lab.facts.sampler import Sampler
from ringroad_lab.facts.witness import View, Witness
from ringroad_lab.host.interface import Host, Process
from ringroad_lab.host.local import LocalHost
from ringroad_lab.host.ssh import SshHost
from ringroad_lab.message_size.station import Station
from ringroad_lab.message_size.sweep import STATIONS, joined_stations, measure_tcp_load, station_cable, sweep_message_sizes
from ringroad_lab.message_size.watch import SweepWatch
from ringroad_lab.method.interface import DisturbedRepeats, MethodSettings
from ringroad_lab.method.live_migration import LiveMigrationSettings
from ringroad_lab.method.message_size import MessageSizeSettings, StationSettings
from ringroad_lab.method.tcp_load import TcpLoadSettings
from ringroad_lab.migration.measure import Places, joined_switches, measure_live_migration
from ringroad_lab.record import DutRecord, LogExcerpt, Outcome, Series
from ringroad_lab.run.events import CeilingFound, Event, HugePagesNeeded, SelfTestFailed, StepNamed, Warned
from ringroad_lab.run.interface import Stations
from ringroad_lab.sandbox.huge_pages import await_huge_pages
from ringroad_lab.sandbox.processor_set import cpu_list
from ringroad_lab.scenario.cpu_layout import lay_out_stations
from ringroad_lab.scenario.library import LOCAL_HOST
from ringroad_lab.scenario.model import DutChoice, Scenario
from ringroad_lab.setup.ceilings import Ceilings
from ringroad_lab.setup.drivers import find_dut, huge_pages_mib, read_settings, with_build
from ringroad_lab.setup.dut_record import dut_record, without_run
from ringroad_lab.setup.test_setup import TestSetup
from ringroad_lab.trial import DisturbanceLimits


@dataclass(frozen=True)
class LabelledSamples:
    """The samples and logs of a device and its peers, with the device's label."""

    label: str
    sampler: Sampler
    programs: Callable[[], Sequence[LogExcerpt]]
    """Returns the logs of the programs."""

    def series(self) -> Sequence[Series]:
        """Return the samples."""
        return [series.model_copy(update={"subject": f"{self.label}: {series.subject}"}) for series in self.sampler.series()]

    def warnings(self) -> Sequence[str]:
        """Return the reasons to doubt the measurements."""
        return self.sampler.warnings()

    def logs(self) -> Sequence[LogExcerpt]:
        """Return the end of the programs' output."""
        return [log.model_copy(update={"source": f"{self.label}: {log.source}"}).shortened() for log in self.programs()]


@dataclass(frozen=True)
class RealStations:
    """Two stations of this machine, joined by a device."""

    choice: DutChoice
    dut: Dut
    stations: tuple[Station, Station]
    settings: StationSettings
    limits: DisturbanceLimits
    cpus: frozenset[int]
    """Processors of the stations, and of a device with processes."""
    on_step: Callable[[str], None]

    def record(self) -> DutRecord:
        """Return the record of the device."""
        versions = self.dut.versions()
        for station in self.stations:
            versions |= station.versions()
        each = " and ".join(cpu_list(station.placement.cpus) for station in self.stations)
        device = f"device on {cpu_list(self.dut.placement.cpus)}" if self.dut.processes() else "device in the kernel"
        ports = self.dut.port_modes() | {"stations": f"{self.stations[0].title}, on processors {each}; {device}"}
        return dut_record(self.choice, self.dut, self.stations, versions, ports)

    def measure(self) -> Outcome:
        """Load with TCP, or sweep message sizes, between the stations."""
        witness = Witness(self.cpus, self.limits.limit, self._pids, View.outside())
        watch = SweepWatch(witness, DisturbedRepeats(self.limits))
        if isinstance(self.settings, TcpLoadSettings):
            return measure_tcp_load(self.dut, self.stations, self.settings, watch, self.on_step)
        assert isinstance(self.settings, MessageSizeSettings)
        return sweep_message_sizes(self.dut, self.stations, self.settings, watch, self.on_step)

    def processes(self) -> dict[str, Sequence[Process]]:
        """Return all processes, by the part that they belong to."""
        return {"dut": self.dut.processes(), **{station.name: station.processes() for station in self.stations}}

    def _pids(self) -> tuple[int, ...]:
        return _pids(self.processes())

    def collect(self) -> dict[str, int]:
        """Return the device's counters."""
        return self.dut.collect()

    def logs(self) -> Sequence[LogExcerpt]:
        """Return the output of the programs."""
        return [*self.dut.logs(), *(log for station in self.stations for log in station.logs())]


@dataclass(frozen=True)
class RealMigration:
    """Two switches of this machine, joined by a cable, with the ends of a migration."""

    choice: DutChoice
    places: Places
    settings: LiveMigrationSettings
    limits: DisturbanceLimits
    cpus: frozenset[int]
    """Processors of the guest, the other station, and of devices with processes."""
    on_step: Callable[[str], None]

    def record(self) -> DutRecord:
        """Return the record of the device."""
        places = self.places
        peers = (places.guest, places.arrival, places.station)
        versions = places.source.versions() | places.guest.versions()
        ports = {
            f"{place} {number}": without_run(mode, dut.host)
            for place, dut in (("source", places.source), ("destination", places.destination))
            for number, mode in dut.port_modes().items()
        }
        each = ", ".join(f"{peer.name} on {cpu_list(peer.placement.cpus)}" for peer in peers)
        device = f"switches on {cpu_list(places.source.placement.cpus)}" if places.source.processes() else "switches in the kernel"
        return dut_record(self.choice, places.source, peers, versions, ports | {"processors": f"{each}, {device}"})

    def measure(self) -> Outcome:
        """Migrate the guest. It can migrate once, so a disturbed migration is not repeated."""
        witness = Witness(self.cpus, self.limits.limit, self._pids, View.outside())
        watch = SweepWatch(witness, DisturbedRepeats(self.limits.model_copy(update={"extra_trials": 0})))
        return measure_live_migration(self.places, self.settings, watch, self.on_step)

    def processes(self) -> dict[str, Sequence[Process]]:
        """Return all processes, by the part that they belong to."""
        return self.places.processes()

    def _pids(self) -> tuple[int, ...]:
        return _pids(self.processes())

    def collect(self) -> dict[str, int]:
        """Return the counters of both switches."""
        return self.places.counters()

    def logs(self) -> Sequence[LogExcerpt]:
        """Return the output of the programs."""
        places = self.places
        return [log for part in (places.source, places.destination, places.guest, places.arrival) for log in part.logs()]


def _pids(processes: Mapping[str, Sequence[Process]]) -> tuple[int, ...]:
    return tuple(process.pid for members in processes.values() for process in members)


def _name(part: str, process: str) -> str:
    return process if process == part else f"{part} {process}"


def _local_host(stack: ExitStack) -> LocalHost:
    host = LocalHost()
    stack.callback(host.close)
    return host


class RealSetups:
    """Makes test setups; all share the results of the generator's self-tests."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        """Take the callback for events."""
        self._emit = emit
        self._ceilings = Ceilings(
            on_found=lambda ceiling: emit(CeilingFound(ceiling=ceiling)), on_failed=lambda text: emit(SelfTestFailed(text=text))
        )

    @contextmanager
    def make(self, scenario: Scenario, choice: DutChoice) -> Iterator[tuple[TestSetup, LabelledSamples]]:
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
                for text in setup.locality():
                    self._emit(Warned(text=f"{choice.label}: {text}"))
                # Process ids of another machine mean nothing here.
                processes = {} if host else {p.pid: _name(part, p.name) for part, members in setup.processes().items() for p in members}
                with Sampler(processes) as sampler:
                    yield setup, LabelledSamples(choice.label, sampler, setup.logs)
        finally:
            if host is not None:
                host.close()

    @contextmanager
    def make_stations(self, scenario: Scenario, choice: DutChoice, settings: MethodSettings) -> Iterator[tuple[Stations, LabelledSamples]]:
        """Join two stations of this machine by a device, and take everything down at the end of the block.

        Raises:
            LabError: the stations could not be built, or the device is on another machine.
        """
        assert isinstance(settings, StationSettings)
        if choice.host != LOCAL_HOST:
            raise DutError(f"{choice.label} is on {choice.host}: stations are on this machine only")
        kind = station_cable(choice.driver, settings, scenario.physical_of(choice))
        cpus = lay_out_stations(scenario.cpus, os.sched_getaffinity(0), settings)

        def on_step(step: str) -> None:
            self._emit(StepNamed(text=f"{choice.label}: {step}"))

        def place(host: Host) -> tuple[Dut, list[Placement]]:
            """Return the device on a host, and the placements of the stations there."""
            dut_type, label = find_dut(choice.driver), f"dut.{choice.label}"
            placement = Placement(host, cpus.dut, huge_pages=scenario.huge_pages)
            dut = dut_type(read_settings(choice), with_build(placement, choice.build, dut_type.build_programs, f"{label}.build"))
            programs = STATIONS[settings.stations].build_programs
            guest_build = choice.guest_build if programs else None
            return dut, [with_build(Placement(host, used), guest_build, programs, f"{label}.guest_build") for used in cpus.guests]

        def in_use(dut: Dut) -> frozenset[int]:
            return frozenset().union(*cpus.guests, cpus.dut if dut.processes() else ())

        with ExitStack() as stack:
            self._await_huge_pages(scenario, choice)
            dut, (first, second) = place(_local_host(stack))
            joined: RealStations | RealMigration
            if isinstance(settings, LiveMigrationSettings):
                # Each switch, with its end of the migration, has a host of its own.
                other, (arrival, _) = place(_local_host(stack))
                ends = (first, arrival, second)
                places = stack.enter_context(joined_switches((dut, other), kind, settings, ends, on_step))
                joined = RealMigration(choice, places, settings, scenario.disturbance, in_use(dut), on_step)
            else:
                stations = stack.enter_context(joined_stations(dut, kind, settings, (first, second), on_step))
                joined = RealStations(choice, dut, stations, settings, scenario.disturbance, in_use(dut), on_step)
            names = {p.pid: _name(part, p.name) for part, members in joined.processes().items() for p in members}
            sampler = stack.enter_context(Sampler(names))
            yield joined, LabelledSamples(choice.label, sampler, joined.logs)

    def _await_huge_pages(self, scenario: Scenario, choice: DutChoice) -> None:
        """Wait for the huge pages that a device needs; another program can have taken them since the run started."""
        if choice.host == LOCAL_HOST and (mib := huge_pages_mib(scenario, choice)):
            await_huge_pages(mib, lambda: self._emit(HugePagesNeeded(mib=mib)))

    def _reach(self, scenario: Scenario, name: str) -> Host:
        place = next(host for host in scenario.hosts if host.name == name)
        return SshHost(place)
