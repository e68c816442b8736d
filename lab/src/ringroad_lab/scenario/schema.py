"""The schema of settings files.

Lists choose, tables describe: `duts = ["ovs"]` selects the device, `[dut.ovs]` configures it. So a layer can describe devices that a
scenario does not choose, and `--set dut.ovs.settings.ports=afxdp` changes one setting of one device.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainValidator, StringConstraints

from ringroad_lab.build.choice import BuildChoice, GuestBuildChoice
from ringroad_lab.cable.interface import CABLES, CableKind, NicPair
from ringroad_lab.frame_size import FrameMix, parse_frame_mix
from ringroad_lab.sandbox.isolation import IsolationLevel
from ringroad_lab.scenario.model import Cpus, StepChoice
from ringroad_lab.scenario.near_miss import suggest
from ringroad_lab.statistics.verdict import DEFAULT_LIMIT
from ringroad_lab.topology import Topology
from ringroad_lab.trial import DisturbanceLimits, Frozen, VlanId, Vni


def _frame(value: object) -> FrameMix:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"a frame size is a number of bytes, imix, or sizes with weights as '64:7,594:4', not {value!r}")
    return parse_frame_mix(str(value))


def _cable(kind: CableKind) -> CableKind:
    if kind not in CABLES:
        raise ValueError(f"there is no cable '{kind}'{suggest(kind, CABLES)}")
    return kind


CableName = Annotated[CableKind, AfterValidator(_cable)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$", max_length=64)]
FrameText = Annotated[FrameMix, PlainValidator(_frame)]


class DutTable(Frozen):
    """`[dut.LABEL]`."""

    driver: Name | None = None
    """None: the label is the driver's name."""
    host: Name = "local"
    physical: CableName | None = None
    settings: dict[str, Any] = {}
    build: BuildChoice | None = None
    guest_build: GuestBuildChoice | None = None
    generator: dict[str, Any] = {}
    """Empty: the generator of the scenario."""
    guest: str | None = None
    """None, here and below: as the scenario."""
    guest_cables: CableName | None = None
    queues: Annotated[int, Field(ge=1, le=16)] | None = None
    huge_pages: bool | None = None
    method: dict[str, dict[str, Any]] = {}
    """Settings of methods, over those of the scenario."""


class HostTable(Frozen):
    """`[host.NAME]`: another machine of the site; `local` is this one."""

    address: str | None = None
    """None: the host's name is its address."""
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    user: str = "root"
    key_file: str | None = None
    known_hosts_file: str | None = None
    nics: tuple[NicPair, ...] = ()


class ScenarioTable(Frozen):
    """All settings that the merged layers can contain. Each key has the meaning of the scenario's field of the same name."""

    title: str = ""
    topologies: Annotated[tuple[Topology, ...], Field(min_length=1)]
    """Several topologies are measured one after the other; settings of guests apply to topologies with guests."""
    duts: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Labels, in the order of measuring."""
    dut: dict[Name, DutTable] = {}
    physical: CableName | None = None
    guest: str | None = None
    guest_cables: CableName | None = None
    generator: dict[str, Any] = {}
    """`driver`, and settings of that driver."""
    queues: Annotated[int, Field(ge=1, le=16)] = 1
    methods: Annotated[tuple[str, ...], Field(min_length=1)]
    method: dict[str, dict[str, Any]] = {}
    """Settings of methods, including methods that are not chosen."""
    frames: Annotated[tuple[FrameText, ...], Field(min_length=1)]
    steps: tuple[StepChoice, ...] = ()
    repetitions: Annotated[int, Field(ge=1, le=1000)] = 1
    bidirectional: bool = True
    flows: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    vlans: tuple[VlanId, VlanId] = (0, 0)
    vnis: tuple[Vni, Vni] = (0, 0)
    link_bps: Annotated[float, Field(gt=0)] | None = None
    huge_pages: bool = True
    private: bool = True
    cpus: Cpus = Cpus()
    disturbance: DisturbanceLimits = DisturbanceLimits()
    isolation: IsolationLevel = IsolationLevel.OFF
    host: dict[Name, HostTable] = {}
    noise_floor_pairs: Annotated[int, Field(ge=0, le=1000)] = 0
    difference_limit: Annotated[float, Field(gt=0, lt=1)] = DEFAULT_LIMIT
    labels: dict[str, str] = {}
