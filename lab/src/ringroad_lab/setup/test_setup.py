"""Builds a test setup from a scenario: cables, one device under test, guests and the generator.

Once it is built, frames pass. It is always taken down, also after errors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Self

from ringroad_lab.cable.interface import CABLES, Cable, CableKind, Laying, NicPair
from ringroad_lab.cable.lay import lay_cable, remove_cable
from ringroad_lab.cost import CostMeter, ProcessCosts
from ringroad_lab.deadline import wait_until
from ringroad_lab.dut.interface import DutPort, Placement
from ringroad_lab.errors import DutError, ScenarioError
from ringroad_lab.facts.numa_nodes import NumaNodes, Part, huge_pages_mib, locality_warnings, node_of_card
from ringroad_lab.facts.offloads import offloads
from ringroad_lab.facts.witness import View, Witness
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.generator.booked import BookedGenerator
from ringroad_lab.generator.interface import Generator
from ringroad_lab.generator.offered_load import CheckedGenerator
from ringroad_lab.generator.traffic import PORT_NAMES, extra_bytes
from ringroad_lab.guest.interface import GUESTS, Guest, guest_cable
from ringroad_lab.host.interface import Host, Process
from ringroad_lab.host.local import LocalHost
from ringroad_lab.host.ssh import SshHost
from ringroad_lab.loss import paths
from ringroad_lab.record import DutRecord, GeneratorCeiling, LogExcerpt, StepRecord
from ringroad_lab.scenario.cpu_layout import CpuLayout, lay_out_cpus
from ringroad_lab.scenario.model import DutChoice, Scenario, StepChoice
from ringroad_lab.setup.ceilings import Ceilings, Key
from ringroad_lab.setup.drivers import find_dut, find_guest, make_generator, read_settings, with_build
from ringroad_lab.setup.dut_record import dut_record, forwards_in_sender, work_of_sender
from ringroad_lab.setup.hop_reader import HopReader
from ringroad_lab.setup.test_step import run_test_step
from ringroad_lab.setup.watched_generator import PROBE, WatchedGenerator
from ringroad_lab.topology import Wiring, wire
from ringroad_lab.trial import FlowSet, Load, TrialRequest, TrialResult

READY_TIMEOUT_S = 30.0
# A small load, so that even the slowest emulated guest forwards some of it.
PROBE_FPS = 500
PROBE_S = 0.1
PROBE_TIMEOUT_S = 20.0


class TestSetup:
    """Everything between the generator's two ports, while the `with` block lasts."""

    __test__ = False
    """Mark for pytest: not a test, in spite of its name."""

    def __init__(
        self,
        scenario: Scenario,
        choice: DutChoice,
        *,
        ceilings: Ceilings | None = None,
        dut_host: Host | None = None,
        on_step: Callable[[str], None] = lambda step: None,
        reserve_memory: Callable[[], None] = lambda: None,
    ) -> None:
        """Take the scenario to measure, one of its devices, and the device's machine if it is another one.

        New ceilings are added to `ceilings`, so that the next setup does not measure them again. `on_step` gets a description of each
        step, for the user. `reserve_memory` is called just before the device starts, to ensure that its huge pages are free.

        Raises:
            ScenarioError: the parts do not fit together.
        """
        self.scenario = scenario
        self.choice = choice
        self.ceilings = ceilings or Ceilings()
        self._dut_host = dut_host
        self._on_step = on_step
        self._reserve_memory = reserve_memory
        self._dut_type = find_dut(choice.driver)
        self._guest_type = find_guest(scenario.guest) if scenario.guest and scenario.topology.guests else None
        if scenario.topology.guests and self._guest_type is None:
            raise ScenarioError(f"topology {scenario.topology} needs a kind of guest: {', '.join(sorted(GUESTS))}")
        self.cable_kind = scenario.physical_of(choice)
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
        self._cpus = cpus = lay_out_cpus(
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
            self.ceilings.measure(self._ceiling_key(frame), self._driver, self._load(frame), self._on_step)

        self._on_step(f"starting {self._dut.title}")
        self._reserve_memory()
        # Registered before the start: a device whose start fails half-way is stopped too.
        stack.callback(self._dut.stop)
        self._dut.start()
        first, last = self._wiring.physical_ports
        between = [number for pair in self._wiring.guest_ports for number in pair]
        cables = {number: self._lay(stack, dut_host, host, number, self.cable_kind) for number in (first, last)}
        cables |= {number: self._lay(stack, dut_host, host, number, self._guest_cable_kind) for number in between}
        self._ports = [DutPort(number, cable) for number, cable in cables.items()]
        self._dut.configure(self._ports, self._wiring.rules)

        self._driver.witness = Witness(
            self._processors(cpus, dut_host is host), scenario.disturbance.limit, self._pids_here, View.outside()
        )
        ways = paths(
            PORT_NAMES,
            [first, *between, last],
            has_interfaces=not CABLES[self.cable_kind].shares_memory,
            is_forwarded_by_sender=forwards_in_sender(self.cable_kind, self._dut_type) and not self._guests,
        )
        plugged_in = self._driver.plug_in((cables[first], cables[last]))
        is_generator_here = not self._driver.settings.is_elsewhere
        hops = HopReader(self._dut, self._ports, host, is_dut_here=dut_host is host, is_generator_here=is_generator_here)
        booked = BookedGenerator(CheckedGenerator(plugged_in), ways, hops.read)
        self.generator: Generator = WatchedGenerator(booked, self.check, self.ceiling, self._measure_ceiling_again)
        for guest, (near, far) in zip(self._guests, self._wiring.guest_ports, strict=True):
            self._on_step(f"starting {guest.name}")
            stack.callback(guest.stop)
            guest.start((self._dut.plugged_in(cables[near]), self._dut.plugged_in(cables[far])))
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

    def _measure_ceiling_again(self, frame: FrameMix, cause: str) -> None:
        if self._driver.can_run_twice:
            generator, host, cpus = self.scenario.generator_of(self.choice), self._host, self._cpus.generator
            self.ceilings.measure_again(
                self.choice.label, lambda: make_generator(generator, host, cpus), self.cable_kind, self._load(frame), cause, self._on_step
            )

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

    def _ceiling_key(self, frame: FrameMix) -> Key:
        return Ceilings.key(self.scenario.generator_of(self.choice), self.cable_kind, frame)

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
        return self.ceilings.known.get(self._ceiling_key(frame))

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
        ports |= self._offloads()
        return dut_record(self.choice, self._dut, self._guests, versions, ports).model_copy(
            update={"work_of_sender": work_of_sender(self.cable_kind, self._dut_type)}
        )

    def _offloads(self) -> dict[str, str]:
        """Return the offloads of the cables' ends that are interfaces, as they are while the setup measures."""
        ends = {port.number: self._dut.plugged_in(port.cable) for port in self._ports}
        found = {f"{number} offloads": offloads(self._dut.host, cable.dut_end, cable.dut_netns) for number, cable in ends.items()}
        if not self._driver.settings.is_elsewhere:
            named = zip(PORT_NAMES, self._ports, strict=False)
            found |= {f"generator {name} offloads": offloads(self._host, port.cable.far_end) for name, port in named}
        return {name: text for name, text in found.items() if text}

    def locality(self) -> list[str]:
        """Return a sentence for each place where frames cross between the NUMA nodes of a machine."""
        has_cards = CABLES[self.cable_kind].joins_cards
        ends = [(port.cable.dut_end.partition(",")[0], port.cable.far_end) for port in self._ports[: len(PORT_NAMES)]] if has_cards else []
        place = self._dut_host or self._host
        parts: list[tuple[Host, Part]] = []
        if not self._driver.settings.is_elsewhere:
            cards = {end: node_of_card(self._host, end) for _, end in ends}
            memory = huge_pages_mib(self._host, self._driver.processes())
            parts.append((self._host, Part("generator", self._cpus.generator, cards, memory)))
        # A device without processes works on others' processors.
        if self._dut.processes():
            cards = {end: node_of_card(place, end) for end, _ in ends}
            parts.append((place, Part("device", self._cpus.dut, cards, huge_pages_mib(place, self._dut.processes()))))
        for guest, cpus in zip(self._guests, self._cpus.guests, strict=True):
            parts.append((place, Part(guest.name, cpus, {}, huge_pages_mib(place, guest.processes()))))
        pairs = [("device", guest.name) for guest in self._guests] + ([] if has_cards else [("generator", "device")])
        hosts = dict.fromkeys(host for host, _ in parts)
        return [text for host in hosts for text in locality_warnings(NumaNodes.of(host), [each for at, each in parts if at is host], pairs)]

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


def _kinds(kinds: frozenset[CableKind]) -> str:
    return ", ".join(sorted(kinds)) or "none"
