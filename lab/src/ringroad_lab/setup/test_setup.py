"""A test setup, built from a scenario: cables, one device under test, guests and the generator.

Once it is built, frames pass. It is always taken down, also after errors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from ringroad_lab.build.choice import BuildChoice
from ringroad_lab.build.opened import BuildHost, Programs, file_sums, open_build, running_files
from ringroad_lab.cable.interface import Cable, CableKind, Laying, NicPair
from ringroad_lab.cable.interface_counters import interface_counters, show_links
from ringroad_lab.cable.lay import lay_cable, remove_cable
from ringroad_lab.cost import CostMeter, ProcessCosts
from ringroad_lab.cpu_layout import CpuLayout, lay_out_cpus
from ringroad_lab.deadline import wait_until
from ringroad_lab.dut.interface import Dut, DutPort, DutSettings, Placement
from ringroad_lab.errors import DutError, GeneratorError, ScenarioError, value_problems
from ringroad_lab.facts.witness import View, Witness
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.generator.booked import BookedGenerator
from ringroad_lab.generator.interface import Generator, GeneratorDriver
from ringroad_lab.generator.traffic import PORT_NAMES, extra_bytes
from ringroad_lab.guest.interface import Guest, Peer, guest_cable
from ringroad_lab.host.interface import Host, Process
from ringroad_lab.host.local import LocalHost
from ringroad_lab.host.ssh import SshHost
from ringroad_lab.kinds import CABLES, DUTS, GENERATORS, GUESTS
from ringroad_lab.loss import EndCounts, HopCounters, drop_counters, paths
from ringroad_lab.record import DutRecord, GeneratorCeiling, LogExcerpt, StepRecord
from ringroad_lab.scenario.model import DutChoice, GeneratorChoice, Scenario, StepChoice
from ringroad_lab.test_step import run_test_step
from ringroad_lab.topology import Wiring, wire
from ringroad_lab.trial import FlowSet, Load, TrialRequest, TrialResult, TrialVerdict

READY_TIMEOUT_S = 30.0
# A small load, so that even the slowest emulated guest forwards some of it.
PROBE_FPS = 500
PROBE_S = 0.1
# Purpose of trials that begin before all ends are connected.
PROBE = "probe"
# If there are huge pages, the generator's vhost-user ports allocate rings and frames from them: some 14 MiB for two ports with one queue.
GENERATOR_HUGE_PAGES_MIB = 64
PROBE_TIMEOUT_S = 20.0

# Fraction of the frames that must be missing before a trial contradicts a ceiling; the same as in the judgement of trials.
CONTRADICTION = 0.005

Ceilings = dict[tuple[str, CableKind, str], GeneratorCeiling | None]
"""Ceilings of generators, by the generator's settings, transport and name of the frame mix; None if the generator cannot measure it."""


def find_dut(driver: str) -> type[Dut]:
    """Return the class of a driver.

    Raises:
        ScenarioError: there is no device with that name.
    """
    if driver not in DUTS:
        raise ScenarioError(f"there is no device {driver!r}: there are {', '.join(sorted(DUTS))}")
    return DUTS[driver]


def read_settings(choice: DutChoice) -> DutSettings:
    """Return the validated settings of a device.

    Raises:
        ScenarioError: there is no such device, or a setting is invalid.
    """
    try:
        return find_dut(choice.driver).settings_type.model_validate(choice.settings)
    except ValidationError as error:
        raise ScenarioError(f"{choice.label}: settings of {choice.driver}: {'; '.join(value_problems(error))}") from error


def find_guest(kind: str) -> type[Guest]:
    """Return the class of a guest.

    Raises:
        ScenarioError: there is no guest of that kind.
    """
    if kind not in GUESTS:
        raise ScenarioError(f"there is no guest {kind!r}: there are {', '.join(sorted(GUESTS))}")
    return GUESTS[kind]


def forwards_in_sender(kind: CableKind, dut_type: type[Dut]) -> bool:
    """Whether all of the device's forwarding runs in the sender's thread."""
    return kind is CableKind.VETH and dut_type.forwards_for_sender


def work_of_sender(kind: CableKind, dut_type: type[Dut]) -> str:
    """Return the part of the device's work that runs in the sender's thread and takes its processor time; empty if there is none."""
    if kind is not CableKind.VETH:
        return ""
    if forwards_in_sender(kind, dut_type):
        return "all of its forwarding, up to the interface where the generator receives: a veth passes frames on in the sender's thread"
    return "receiving, up to the queue where the device takes frames from: a veth passes frames on in the sender's thread"


def make_generator(choice: GeneratorChoice, host: Host, cpus: frozenset[int]) -> GeneratorDriver:
    """Create the generator, which offers the load.

    Raises:
        ScenarioError: there is no such generator, or one of its settings is invalid.
    """
    if choice.driver not in GENERATORS:
        raise ScenarioError(f"there is no generator {choice.driver!r}: there are {', '.join(sorted(GENERATORS))}")
    driver_type = GENERATORS[choice.driver]
    try:
        # From JSON, where a list is a tuple and a text a path.
        settings = driver_type.settings_type.model_validate_json(json.dumps(choice.settings))
    except ValidationError as error:
        raise ScenarioError(f"settings of the generator {choice.driver}: {'; '.join(value_problems(error))}") from error
    return driver_type(settings, host, cpus)


def huge_pages_mib(scenario: Scenario, choice: DutChoice | None = None) -> int:
    """Return the huge pages that a device's setup needs, MiB; without a device, the most that a setup of the scenario needs; 0: none."""
    if not scenario.huge_pages:
        return 0
    guests = scenario.topology.guests * find_guest(scenario.guest).huge_pages_mib if scenario.guest else 0
    needed = guests + max(find_dut(each.driver).huge_pages_mib for each in ([choice] if choice else scenario.duts))
    return needed + GENERATOR_HUGE_PAGES_MIB if needed else 0


def with_build(placement: Placement, choice: BuildChoice | None, programs: Programs, name: str) -> Placement:
    """Return the placement of a device or guest with its build; `name` names the choice in errors.

    Raises:
        BuildError: there is no such build, or it does not run there.
    """
    if choice is None:
        return placement
    build = open_build(placement.host, choice, programs, name)
    return replace(placement, host=BuildHost(placement.host, build), build=build)


def dut_record(choice: DutChoice, dut: Dut, machines: Sequence[Peer], versions: dict[str, str], ports: dict[str, str]) -> DutRecord:
    """Return the record of a plugged-in device, with the guests or stations that are machines."""
    place = dut.placement.host
    files = running_files(place, dut.processes(), dut.placement.build)
    for machine in machines:
        files |= running_files(place, machine.processes(), machine.placement.build)
        files |= file_sums(place, machine.files(), machine.placement.build)
    guest_builds = [machine.placement.build for machine in machines if machine.placement.build]
    return DutRecord(
        label=choice.label,
        driver=choice.driver,
        settings=dut.settings.model_dump(mode="json"),
        versions=versions,
        # Names that contain the run's folder differ in each run, which is not a difference.
        ports={name: mode.replace(f"{place.folder}/", "").replace(place.cable_prefix, "") for name, mode in ports.items()},
        build=dut.placement.build.source if dut.placement.build else "",
        guest_build=guest_builds[0].source if guest_builds else "",
        files=files,
    )


class TestSetup:
    """Everything between the generator's two ports, while the `with` block lasts."""

    __test__ = False
    """For pytest: not a test, in spite of its name."""

    def __init__(
        self,
        scenario: Scenario,
        choice: DutChoice,
        *,
        ceilings: Ceilings | None = None,
        dut_host: Host | None = None,
        on_step: Callable[[str], None] = lambda step: None,
        reserve_memory: Callable[[], None] = lambda: None,
        contradicted: set[tuple[str, str]] | None = None,
        on_ceiling: Callable[[GeneratorCeiling], None] = lambda ceiling: None,
        on_self_test_failed: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Set what to build.

        Args:
            scenario: The scenario to measure.
            choice: One of its devices.
            ceilings: Known ceilings of the generator. New ones are added, so that the next setup does not measure them again.
            dut_host: The device's machine if it is another one.
            on_step: Called with a description of each step, for the user.
            reserve_memory: Called just before the device starts, to ensure that its huge pages are free.
            contradicted: Devices and frame sizes whose trials contradicted a ceiling, which was measured again. New ones are added.
            on_ceiling: Called with each measured ceiling, also with repeated measurements.
            on_self_test_failed: Called with the error if the generator's self-test fails.

        Raises:
            ScenarioError: the parts do not fit together.
        """
        self.scenario = scenario
        self.choice = choice
        self.ceilings = ceilings if ceilings is not None else {}
        self._dut_host = dut_host
        self._on_step = on_step
        self._reserve_memory = reserve_memory
        self._contradicted = contradicted if contradicted is not None else set()
        self._on_ceiling = on_ceiling
        self._on_self_test_failed = on_self_test_failed
        self._dut_type = find_dut(choice.driver)
        self._guest_type = find_guest(scenario.guest) if scenario.guest and scenario.topology.guests else None
        if scenario.topology.guests and self._guest_type is None:
            raise ScenarioError(f"topology {scenario.topology} needs a kind of guest: {', '.join(sorted(GUESTS))}")
        self.cable_kind = scenario.physical_by_dut.get(choice.label, scenario.physical)
        if self.cable_kind not in self._dut_type.carries:
            supported = _kinds(self._dut_type.carries)
            raise ScenarioError(f"{choice.label}: {choice.driver} has no port for {self.cable_kind}; it supports {supported}")
        self._settings = read_settings(choice)
        self._wiring: Wiring = wire(scenario.topology)
        self._stack = ExitStack()
        self._guests: list[Guest] = []
        self._machines: dict[str, Host] = {}

    def __enter__(self) -> Self:
        """Build the setup, and check that it forwards.

        Raises:
            LabError: names the part that could not be built, and the reason; parts already built are taken down.
        """
        with ExitStack() as stack:
            self._build(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Take everything down, the latest first."""
        self._stack.close()

    def _build(self, stack: ExitStack) -> None:
        scenario = self.scenario
        host = LocalHost()
        stack.callback(host.close)
        dut_host = self._dut_host or host
        self._host = host
        cpus = lay_out_cpus(
            scenario.cpus,
            os.sched_getaffinity(0),
            scenario.queues,
            scenario.topology.guests,
            is_dut_elsewhere=dut_host is not host,
        )

        choice, label = self.choice, f"dut.{self.choice.label}"
        placement = Placement(dut_host, cpus.dut, scenario.queues, scenario.huge_pages, has_dpdk_cards=self.cable_kind is CableKind.VFIO)
        built = with_build(placement, choice.build, self._dut_type.build_programs, f"{label}.build")
        self._dut = self._dut_type(self._settings, built)
        if self._guest_type is not None:
            built = with_build(placement, choice.guest_build, self._guest_type.build_programs, f"{label}.guest_build")
            placements = [replace(built, cpus=guest_cpus) for guest_cpus in cpus.guests]
            self._guests = [self._guest_type(f"guest{number}", each) for number, each in enumerate(placements, 1)]
        self._dut.prepare()
        for guest in self._guests:
            guest.prepare()

        self._driver = make_generator(scenario.generator_of(self.choice), host, cpus.generator)
        self._driver.prepare()
        self._on_step("starting the generator")
        stack.callback(self._driver.stop)
        self._driver.start()
        for frame in scenario.frames:
            self._measure_ceiling(frame)

        self._on_step(f"starting {self._dut.title}")
        self._reserve_memory()
        # Registered before the start: a device whose start fails half-way is stopped too.
        stack.callback(self._dut.stop)
        self._dut.start()
        physical = [self._lay(stack, dut_host, host, number, self.cable_kind) for number in self._wiring.physical_ports]
        guest_cables = [
            tuple(self._lay(stack, dut_host, host, number, self._guest_cable_kind) for number in pair) for pair in self._wiring.guest_ports
        ]
        numbers = (*self._wiring.physical_ports, *(number for pair in self._wiring.guest_ports for number in pair))
        cables = (*physical, *(cable for pair in guest_cables for cable in pair))
        self._ports = [DutPort(number, cable) for number, cable in zip(numbers, cables, strict=True)]
        self._dut.configure(self._ports, self._wiring.rules)

        self._driver.witness = Witness(
            self._processors(cpus, dut_host is host), scenario.disturbance.limit, self._pids_here, View.outside()
        )
        first, last = self._wiring.physical_ports
        route = [first, *(number for pair in self._wiring.guest_ports for number in pair), last]
        ways = paths(
            PORT_NAMES,
            route,
            has_interfaces=not CABLES[self.cable_kind].shares_memory,
            is_forwarded_by_sender=forwards_in_sender(self.cable_kind, self._dut_type) and not self._guests,
        )
        plugged_in = self._driver.plug_in((physical[0], physical[1]))
        booked = BookedGenerator(plugged_in, ways, partial(self._count_hops, physical))
        self.generator: Generator = WatchedGenerator(booked, self.check, self.ceiling, partial(self._measure_ceiling_again, cpus.generator))
        for guest, pair in zip(self._guests, guest_cables, strict=True):
            self._on_step(f"starting {guest.name}")
            stack.callback(guest.stop)
            guest.start((self._dut.plugged_in(pair[0]), self._dut.plugged_in(pair[1])))
        self._dut.await_ready(READY_TIMEOUT_S)
        self._on_step("checking that frames pass")
        self._probe()

    def _processors(self, cpus: CpuLayout, is_dut_here: bool) -> frozenset[int]:
        """Return this machine's processors that move frames: a device without processes works on the sender's processor."""
        if not is_dut_here:
            return cpus.generator
        return cpus.generator.union(cpus.dut if self._dut.processes() else (), *cpus.guests)

    def _pids_here(self) -> tuple[int, ...]:
        is_dut_here = self._dut_host is None
        parts = self.processes().items()
        return tuple(process.pid for part, members in parts if is_dut_here or part == "generator" for process in members)

    def _measure_ceiling(self, frame: FrameMix) -> None:
        if (key := self._ceiling_key(frame)) in self.ceilings:
            return
        self._on_step(f"measuring the generator's ceiling over {self.cable_kind}: {frame.name}")
        try:
            self.ceilings[key] = ceiling = self._driver.ceiling(self.cable_kind, self._load(frame))
        except GeneratorError as error:
            self._on_self_test_failed(str(error))
            raise
        if ceiling is not None:
            self._on_ceiling(ceiling)

    def _measure_ceiling_again(self, cpus: frozenset[int], frame: FrameMix, cause: str) -> None:
        """Measure again a ceiling that a trial contradicts, once for each device and frame size; both stay in the record."""
        if (self.choice.label, frame.name) in self._contradicted or not self._driver.can_run_twice:
            return
        self._contradicted.add((self.choice.label, frame.name))
        self._on_step(f"measuring the generator's ceiling again: {cause}")
        # In another process, so that the ports of the first one stay open: devices take long to reconnect.
        again = make_generator(self.scenario.generator_of(self.choice), self._host, cpus)
        try:
            again.start()
            if (ceiling := again.ceiling(self.cable_kind, self._load(frame))) is not None:
                self._on_ceiling(ceiling.model_copy(update={"cause": f"{self.choice.label}: {cause}"}))
        except GeneratorError as error:
            # This does not affect the measurement: the trial that was the cause is judged separately.
            self._on_step(f"the generator's ceiling could not be measured again: {error}")
        finally:
            again.stop()

    def _count_hops(self, cables: Sequence[Cable]) -> HopCounters:
        """Read the counters of all hops: the device's own, and those of cable ends that are interfaces of this machine."""
        links = {} if CABLES[self.cable_kind].shares_memory else show_links(self._host)
        # Interfaces of other machines may have the names of interfaces here.
        far_links = {} if self._driver.settings.is_elsewhere else links
        dut_links = links if self._dut_host is None else {}
        ends: dict[str, EndCounts] = {}
        drops: dict[str, int] = {}
        for name, cable in zip(PORT_NAMES, cables, strict=True):
            if counters := interface_counters(far_links.get(cable.far_end, {})):
                ends[name] = EndCounts(received=_came(counters), sent=counters.get("tx_frames"))
            for end, link in (("generator's end", far_links.get(cable.far_end)), ("device's end", dut_links.get(cable.dut_end))):
                dropped = drop_counters(interface_counters(link or {}))
                drops |= {f"cable {name}, {end}: {counter}": value for counter, value in dropped.items()}
        try:
            collected = self.collect()
        except DutError:
            # The other counters are still valid.
            return HopCounters(generator=ends, drops=drops)
        device = self._dut.end_counts(self._ports, collected)
        for port in self._ports:
            # An AF_XDP driver may not count frames that the kernel dropped at its full ring; the interface counts them.
            if port.cable.kind is CableKind.VETH and (counters := interface_counters(dut_links.get(port.cable.dut_end, {}))):
                device[port.number] = replace(device[port.number], received=_came(counters))
        drops |= {f"device: {name}": value for name, value in drop_counters(collected).items()}
        return HopCounters(device, ends, drops)

    def _load(self, frame: FrameMix) -> Load:
        scenario = self.scenario
        return Load(
            frame=frame,
            rate_fps=PROBE_FPS,
            bidirectional=scenario.bidirectional,
            flows=scenario.flows,
            vlans=scenario.vlans,
            vnis=scenario.vnis,
        )

    def _ceiling_key(self, frame: FrameMix) -> tuple[str, CableKind, str]:
        return self.scenario.generator_of(self.choice).model_dump_json(), self.cable_kind, frame.name

    @property
    def _guest_cable_kind(self) -> CableKind:
        carried = self._dut_type.carries & (self._guest_type.carries if self._guest_type else frozenset())
        kind = guest_cable(self.scenario.guest_cables, carried)
        if kind not in carried:
            raise ScenarioError(
                f"no cable {kind or ''} joins {self.choice.driver} and guest {self.scenario.guest}: both support {_kinds(carried)}"
            )
        return kind

    def _lay(self, stack: ExitStack, dut_host: Host, host: Host, number: int, kind: CableKind) -> Cable:
        nics = self._nics(number) if CABLES[kind].joins_cards else None
        extra = max(extra_bytes(self._load(self.scenario.frames[0]), sender) for sender in (0, 1))
        cable = lay_cable(
            Laying(
                kind,
                f"{dut_host.cable_prefix}p{number}",
                dut_host,
                is_dut_server=self._dut_type.serves_sockets,
                queues=self.scenario.queues,
                max_frame_bytes=max(size for frame in self.scenario.frames for size, _ in frame.parts) + extra,
                nics=nics,
                far_host=None if self._driver.settings.is_elsewhere else host,
            )
        )
        stack.callback(remove_cable, cable, dut_host)
        return cable

    def _nics(self, number: int) -> NicPair:
        place = next((each for each in self.scenario.hosts if each.name == self.choice.host), None)
        if place is None or len(place.nics) < number:
            raise ScenarioError(f"{self.choice.label}: the site has no pair of network cards number {number} for host {self.choice.host}")
        return place.nics[number - 1]

    def _probe(self) -> None:
        """Check that frames pass in each used direction: a device that forwards nothing is an error, not a figure."""
        # One flow per direction: with many flows there would be few frames each. Other flows are checked when they are measured.
        load = self._load(FrameMix(name="64", parts=((64, 1),))).model_copy(update={"flows": 1})
        last: list[TrialResult] = []

        def passes() -> bool:
            last[:] = [self.generator.trial(TrialRequest(load=load, duration_s=PROBE_S, purpose=PROBE))]
            return all(way.received_frames for way in last[0].directions)

        if wait_until(passes, PROBE_TIMEOUT_S):
            return
        ways = ", ".join(f"{way.received_frames} of {way.sent_frames} from {way.sender} to {way.receiver}" for way in last[0].directions)
        counters = ", ".join(f"{name} {value}" for name, value in self.collect().items() if value)
        why = "; ".join(("", *last[0].reasons))
        raise DutError(f"{self._dut.title} forwards nothing: {ways} frames arrived{why}. Its nonzero counters: {counters or 'none'}")

    def ceiling(self, frame: FrameMix) -> GeneratorCeiling | None:
        """Return the generator's ceiling for these frames; None if it cannot be measured, as over network cards."""
        return self.ceilings.get(self._ceiling_key(frame))

    def check(self) -> None:
        """Check that the generator, the device and the guests are running.

        Raises:
            LabError: names the part that ended, with the end of its log.
        """
        self._driver.check()
        self._dut.check()
        for guest in self._guests:
            guest.check()

    def run_test_step(self, step: StepChoice, environment: Mapping[str, str]) -> StepRecord:
        """Run a test step on its machine, with the device's variables in the environment."""
        return run_test_step(step, self._machine(step.on), {**self._dut.environment(), **environment})

    def _machine(self, name: str) -> Host:
        if name == "generator":
            return self._host
        if name in ("dut", self.choice.host):
            return self._dut.host
        if name not in self._machines:
            self._machines[name] = SshHost(next(host for host in self.scenario.hosts if host.name == name))
            self._stack.callback(self._machines[name].close)
        return self._machines[name]

    def collect(self) -> dict[str, int]:
        """Return the device's own counters.

        Raises:
            DutError: the counters are not available.
        """
        return self._dut.collect()

    def record(self) -> DutRecord:
        """Return the record of the device: settings, versions, transports of its ports."""
        versions = dict(self._dut.versions())
        for guest in self._guests:
            versions |= guest.versions()
        if self.choice.generator is not None:
            versions["generator"] = self._driver.version()
        ports = {str(port.number): f"{port.cable.kind} {port.cable.dut_end}" for port in self._ports} | self._dut.port_modes()
        ports |= {f"generator {name}": mode for name, mode in self._driver.port_modes().items()}
        return dut_record(self.choice, self._dut, self._guests, versions, ports).model_copy(
            update={"work_of_sender": work_of_sender(self.cable_kind, self._dut_type)}
        )

    def generator_version(self) -> str:
        """Return the generator's name and version."""
        return self._driver.version()

    def processes(self) -> Mapping[str, tuple[Process, ...]]:
        """Return the processes to sample for processor time and memory, by part of the setup."""
        return {
            "generator": tuple(self._driver.processes()),
            "dut": tuple(self._dut.processes()),
            **{guest.name: tuple(guest.processes()) for guest in self._guests},
        }

    @property
    def costs(self) -> CostMeter:
        """The meter of the device's cost, on its machine."""
        return ProcessCosts(self._dut.placement.host, self._dut.processes(), counts_cycles=True, busy_s=self._dut.busy_s)

    def install_flows(self, flow_set: FlowSet | None) -> float:
        """Load the entries of a flow set, or with None the default ones, into the device's flow table; return the time this took, s.

        Raises:
            DutError: the device has no flow table, or refused.
        """
        flows = f"{flow_set.entries} flow entries" if flow_set else "the default flows"
        self._on_step(f"loading {flows} into {self._dut.title}")
        return self._dut.install_flows(flow_set)

    def logs(self) -> tuple[LogExcerpt, ...]:
        """Return the output of the programs."""
        return (*self._driver.logs(), *self._dut.logs(), *(log for guest in self._guests for log in guest.logs()))


class WatchedGenerator(Generator):
    """A generator whose trials are valid only while the device is running, and only up to the generator's ceiling."""

    def __init__(
        self,
        generator: Generator,
        check: Callable[[], None],
        ceiling: Callable[[FrameMix], GeneratorCeiling | None],
        on_contradiction: Callable[[FrameMix, str], None],
    ) -> None:
        """Set the generator and callbacks.

        Args:
            generator: Offers the loads.
            check: Raises an error if a part of the setup has ended.
            ceiling: Returns the generator's ceiling for frames.
            on_contradiction: Called with a description if a trial contradicts a ceiling.
        """
        self._generator = generator
        self._check = check
        self._ceiling = ceiling
        self._on_contradiction = on_contradiction

    def trial(self, request: TrialRequest) -> TrialResult:
        """Offer a load.

        Raises:
            DutError: frames were lost because the device ended.
            GuestError: frames were lost because a guest ended.
            GeneratorError: the generator ended, or the load could not be offered.
        """
        try:
            result = self._generator.trial(request)
        except GeneratorError:
            # A device that ends may take the generator's ports with it: then report the device's end.
            self._check()
            raise
        if not result.is_valid or result.lost_frames:
            self._check()
        ceiling = self._ceiling(request.load.frame)
        if ceiling is None:
            return result
        if request.purpose != PROBE and (cause := contradiction(result, ceiling)):
            self._on_contradiction(request.load.frame, cause)
        refused = sum(way.refused_frames for way in result.directions)
        if refused and request.load.rate_fps > ceiling.ceiling_fps:
            # The generator's ring would have been full without a device, too.
            own = f"{ceiling.ceiling_fps:.0f} frames/s that the generator carries by itself"
            reason = f"{refused} frames found no room, at a load above the {own}"
            return result.model_copy(update={"verdict": TrialVerdict.INVALID, "reasons": (*result.reasons, reason)})
        return result

    def version(self) -> str:
        """Return name and version."""
        return self._generator.version()


def contradiction(result: TrialResult, ceiling: GeneratorCeiling) -> str:
    """Describe how a trial contradicts the generator's ceiling; empty if it does not.

    Only constant loads can: a burst may be faster than its rate. A device that holds the sender up is not a contradiction. Neither is a
    trial that sent nothing: then there was no receiver.
    """
    load = result.request.load
    if load.burst_frames is not None or not all(way.sent_frames for way in result.directions):
        return ""
    own = f"its ceiling was measured as {ceiling.ceiling_fps:.0f} frames/s"
    if load.rate_fps > ceiling.ceiling_fps * (1 + CONTRADICTION):
        is_carried = result.is_valid and not result.lost_frames
        return f"the generator carried {load.rate_fps:.0f} frames/s, and {own}" if is_carried else ""
    for way in result.directions:
        is_held_up = way.loss is not None and way.loss.is_refused_by_device
        offered = way.sent_frames - (0 if is_held_up else way.refused_frames)
        if offered < way.intended_frames * (1 - CONTRADICTION):
            return f"the generator offered {offered} frames of {way.intended_frames} at {load.rate_fps:.0f} frames/s, and {own}"
    return ""


def _came(counters: Mapping[str, int]) -> int | None:
    """Return the frames that reached an interface; frames missed for lack of buffers are counted separately."""
    received = counters.get("rx_frames")
    return None if received is None else received + counters.get("rx_missed", 0)


def _kinds(kinds: frozenset[CableKind]) -> str:
    return ", ".join(sorted(kinds)) or "none"
