"""A scenario as all its layers made it."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from ringroad_lab.build.choice import BuildChoice, GuestBuildChoice, StagedBuild, StagedGuestBuild
from ringroad_lab.cable.interface import CableKind, NicPair
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.statistics.verdict import DEFAULT_LIMIT
from ringroad_lab.topology import Topology
from ringroad_lab.trial import DisturbanceLimits, Frozen, VlanId, Vni


class GeneratorChoice(Frozen):
    """What offers the load."""

    driver: str = "ringroad"
    settings: dict[str, Any] = {}
    """Checked by the driver's own type."""


class DutChoice(Frozen):
    """One device of a scenario."""

    label: str
    """Unique in the scenario: `ovs-dpdk`, or `new` and `old` of one driver."""
    driver: str
    host: str = "local"
    """`local`, or a host of the site."""
    settings: dict[str, Any] = {}
    """Checked by the driver's own type."""
    build: StagedBuild | BuildChoice | None = None
    """Build of its programs; None: the machine's own."""
    guest_build: StagedGuestBuild | GuestBuildChoice | None = None
    """The same of the guests that it is measured with."""
    generator: GeneratorChoice | None = None
    """None: the scenario's."""


class MethodChoice(Frozen):
    """One method of a scenario."""

    name: str
    settings: dict[str, Any] = {}
    """Checked by the method's own type."""


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error
    return text


class StepChoice(Frozen):
    """A test step: a command around measurements, and what is expected of it."""

    name: str = ""
    """For people."""
    when: Literal["start", "before", "after", "end"] = "after"
    """`start`: when the device was started and frames pass; `before` and `after` each measurement; `end`: after the last measurement."""
    on: str = "dut"
    """`dut`: the device's machine; `generator`: the lab's own; or a host of the site."""
    run: Annotated[str, Field(min_length=1)]
    """For the shell. The device's variables, and RINGROAD_LAB_DUT, _METHOD and _FRAME, are in its environment."""
    expect: Annotated[str, AfterValidator(_regex)] = ""
    """A regular expression that has to be found in what the command says."""
    status: int | Literal["any"] = 0
    """How the command has to end."""
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 30.0


class Cpus(Frozen):
    """Which processors do what. Empty: those of the host, shared out by the lab."""

    generator: frozenset[int] = frozenset()
    dut: frozenset[int] = frozenset()
    guests: frozenset[int] = frozenset()


class IsolationLevel(StrEnum):
    """What a run may change on this machine, until its end, so that others disturb it less."""

    OFF = "off"
    """Nothing."""
    SETTINGS = "settings"
    """Settings of the run's processors and the kernel's: frequency, idle states, interrupts, work of the kernel that others can do."""
    FULL = "full"
    """Those, and other programs are kept off the run's processors."""


class SiteHost(Frozen):
    """Another machine, reached by SSH."""

    name: str
    address: str
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    user: str = "root"
    key_file: str | None = None
    known_hosts_file: str | None = None
    nics: tuple[NicPair, ...] = ()


class Scenario(Frozen):
    """What is measured, how, and with what."""

    name: str
    title: str = ""
    topology: Topology = Topology.P2P
    duts: tuple[DutChoice, ...] = Field(min_length=1)
    """More than one: they are measured in turns, repetition by repetition."""
    physical: CableKind = CableKind.VETH
    """What the generator's cables are made of."""
    physical_by_dut: dict[str, CableKind] = {}
    """By label, where a device has others."""
    guest: str | None = None
    """Kind of guest, of topologies that have one."""
    guest_cables: CableKind | None = None
    """What the guests' cables are made of; None: the first that device and guest both carry."""
    generator: GeneratorChoice = GeneratorChoice()
    queues: Annotated[int, Field(ge=1, le=16)] = 1
    methods: tuple[MethodChoice, ...] = Field(min_length=1)
    frames: tuple[FrameMix, ...] = Field(min_length=1)
    steps: tuple[StepChoice, ...] = ()
    """Test steps, in this order."""
    repetitions: Annotated[int, Field(ge=1, le=1000)] = 1
    """How often each device is started anew and measured."""
    bidirectional: bool = True
    flows: Annotated[int, Field(ge=1)] = 1
    vlans: tuple[VlanId, VlanId] = (0, 0)
    """VLAN of the frames that the generator's ports 1 and 2 send; 0: no tag."""
    vnis: tuple[Vni, Vni] = (0, 0)
    """VXLAN network of the frames that the generator's ports 1 and 2 send; 0: no VXLAN."""
    link_bps: Annotated[float, Field(gt=0)] | None = None
    """Nominal speed of the links, bit/s; None for links of memory, which have none."""
    huge_pages: bool = True
    private: bool = True
    """Whether all runs in network, mount and process namespaces of its own; not where NICs or other hosts take part."""
    cpus: Cpus = Cpus()
    disturbance: DisturbanceLimits = DisturbanceLimits()
    isolation: IsolationLevel = IsolationLevel.OFF
    hosts: tuple[SiteHost, ...] = ()
    noise_floor_pairs: Annotated[int, Field(ge=0)] = 0
    """So often the first device is measured against itself."""
    difference_limit: Annotated[float, Field(gt=0, lt=1)] = DEFAULT_LIMIT
    """A comparison that could have missed a relative difference of this does not say that there is none."""
    labels: dict[str, str] = {}

    def generator_of(self, dut: DutChoice) -> GeneratorChoice:
        """Return what offers the load to a device."""
        return dut.generator or self.generator
