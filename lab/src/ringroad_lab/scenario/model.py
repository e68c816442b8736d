"""A scenario, merged from all its layers."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from ringroad_lab.build.choice import BuildChoice, GuestBuildChoice, StagedBuild, StagedGuestBuild
from ringroad_lab.cable.interface import CableKind, NicPair
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.host.interface import SshAddress
from ringroad_lab.sandbox.isolation import IsolationLevel
from ringroad_lab.statistics.verdict import DEFAULT_LIMIT
from ringroad_lab.topology import Topology
from ringroad_lab.trial import DisturbanceLimits, Frozen, VlanId, Vni


class GeneratorChoice(Frozen):
    """The generator that offers the load."""

    driver: str = "ringroad"
    settings: dict[str, Any] = {}
    """Checked by the settings type of the driver."""


# Settings of a scenario that a device can have of its own, besides those of methods.
_OWN = ("guest", "guest_cables", "queues", "huge_pages")


class DutChoice(Frozen):
    """One device of a scenario."""

    label: str
    """Unique in the scenario: `ovs-dpdk`, or `new` and `old` of one driver."""
    driver: str
    host: str = "local"
    """`local`, or a host of the site."""
    settings: dict[str, Any] = {}
    """Checked by the settings type of the driver."""
    build: StagedBuild | BuildChoice | None = None
    """Build of its programs; None: the programs of the machine."""
    guest_build: StagedGuestBuild | GuestBuildChoice | None = None
    """Build of the guests that it is measured with."""
    generator: GeneratorChoice | None = None
    """None: the generator of the scenario."""
    guest: str | None = None
    """None, here and below: as the scenario."""
    guest_cables: CableKind | None = None
    queues: Annotated[int, Field(ge=1, le=16)] | None = None
    huge_pages: bool | None = None
    methods: dict[str, dict[str, Any]] = {}
    """By name, the whole settings of methods whose settings are not those of the scenario."""

    def own(self) -> dict[str, Any]:
        """Return the settings that are not those of the scenario, by name, for a record."""
        found = self.model_dump(mode="json", include=set(_OWN), exclude_none=True)
        return found | {f"method.{name}": settings for name, settings in self.methods.items()}


class MethodChoice(Frozen):
    """One method of a scenario."""

    name: str
    settings: dict[str, Any] = {}
    """Checked by the settings type of the method."""


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from error
    return text


class StepChoice(Frozen):
    """A test step: a command before or after measurements, and its expected result."""

    name: str = ""
    """Name for users."""
    when: Literal["start", "before", "after", "end"] = "after"
    """`start`: after the device was started and frames pass; `before` and `after` each measurement; `end`: after the last measurement."""
    on: str = "dut"
    """`dut`: the device's machine; `generator`: this machine; or a host of the site."""
    run: Annotated[str, Field(min_length=1)]
    """A shell command. The device's variables, and RINGROAD_LAB_DUT, _METHOD and _FRAME, are in its environment."""
    expect: Annotated[str, AfterValidator(_regex)] = ""
    """A regular expression that the output of the command must contain."""
    status: int | Literal["any"] = 0
    """Required exit status of the command."""
    timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 30.0


class Cpus(Frozen):
    """Processors of each role. Empty: the lab distributes the processors of the host."""

    generator: frozenset[int] = frozenset()
    dut: frozenset[int] = frozenset()
    guests: frozenset[int] = frozenset()


class SiteHost(SshAddress):
    """Another machine of the site."""

    nics: tuple[NicPair, ...] = ()


class Scenario(Frozen):
    """The devices, methods, traffic and setup of a run."""

    name: str
    title: str = ""
    topology: Topology = Topology.P2P
    duts: tuple[DutChoice, ...] = Field(min_length=1)
    """Several devices are measured in turns, repetition by repetition."""
    physical: CableKind = CableKind.VETH
    """Kind of the generator's cables."""
    physical_by_dut: dict[str, CableKind] = {}
    """Kinds by label, for devices with another kind."""
    guest: str | None = None
    """Kind of guest, for topologies with guests."""
    guest_cables: CableKind | None = None
    """Kind of the guests' cables; None: the first kind that device and guest both support."""
    generator: GeneratorChoice = GeneratorChoice()
    queues: Annotated[int, Field(ge=1, le=16)] = 1
    methods: tuple[MethodChoice, ...] = Field(min_length=1)
    frames: tuple[FrameMix, ...] = Field(min_length=1)
    steps: tuple[StepChoice, ...] = ()
    """Test steps, in this order."""
    repetitions: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of times that each device is restarted and measured."""
    bidirectional: bool = True
    flows: Annotated[int, Field(ge=1)] = 1
    vlans: tuple[VlanId, VlanId] = (0, 0)
    """VLAN of the frames that the generator's ports 1 and 2 send; 0: no tag."""
    vnis: tuple[Vni, Vni] = (0, 0)
    """VXLAN network of the frames that the generator's ports 1 and 2 send; 0: no VXLAN."""
    link_bps: Annotated[float, Field(gt=0)] | None = None
    """Nominal speed of the links, bit/s; None for memory links, which have none."""
    huge_pages: bool = True
    private: bool = True
    """Whether everything runs in its own network, mount and process namespaces; not possible with NICs or other hosts."""
    cpus: Cpus = Cpus()
    disturbance: DisturbanceLimits = DisturbanceLimits()
    isolation: IsolationLevel = IsolationLevel.OFF
    hosts: tuple[SiteHost, ...] = ()
    noise_floor_pairs: Annotated[int, Field(ge=0)] = 0
    """Number of times that the first device is measured against itself."""
    difference_limit: Annotated[float, Field(gt=0, lt=1)] = DEFAULT_LIMIT
    """A comparison that could have missed a relative difference of this size does not report `no difference`."""
    labels: dict[str, str] = {}

    def of(self, dut: DutChoice) -> Scenario:
        """Return the scenario with the device's own settings in place of those of all devices."""
        own = {name: value for name in _OWN if (value := getattr(dut, name)) is not None}
        methods = tuple(each.model_copy(update={"settings": dut.methods.get(each.name, each.settings)}) for each in self.methods)
        return self.model_copy(update={**own, "methods": methods})

    @property
    def most_queues(self) -> int:
        """The greatest number of queue pairs of a port."""
        return max(dut.queues or self.queues for dut in self.duts)

    def generator_of(self, dut: DutChoice) -> GeneratorChoice:
        """Return the generator that offers the load to a device."""
        return dut.generator or self.generator

    def physical_of(self, dut: DutChoice) -> CableKind:
        """Return the kind of the generator's cables to a device."""
        return self.physical_by_dut.get(dut.label, self.physical)
