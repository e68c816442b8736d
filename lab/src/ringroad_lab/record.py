"""The record of a run: settings, measurements and facts. The store keeps it, reports show it, exports carry it.

The schema only grows: a field is added with a default, none changes its meaning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from ringroad_lab.frame_size import FrameMix
from ringroad_lab.trial import Count, Figure, FramesPerSecond, Frozen, Moment, Seconds, TrialResult

Ratio = Annotated[float, Field(ge=1e-30, le=1e30)]


def _with_finite_numbers(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    # Python reads and writes NaN and Infinity, which JSON does not have.
    json.dumps(value, allow_nan=False)
    return value


JsonObject = Annotated[dict[str, JsonValue], AfterValidator(_with_finite_numbers)]


class RunState(StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    STOPPED = "stopped"
    """By the user: what was measured is kept, and it can be resumed."""
    FAILED = "failed"
    NOT_INSTALLED = "not installed"
    """A build that it was to measure cannot be had, or does not run there."""


class MeasurementStatus(StrEnum):
    """What a measurement's figures are worth. In the order of severity."""

    OK = "ok"
    DISTURBED = "disturbed"
    """Others took more of the run's processors than a limit in trials that the figure rests on: the device may do more. A measurement of a
    more severe status may be disturbed, too."""
    LOWER_BOUND = "lower-bound"
    """The generator's ceiling passed, or frames were lost outside the device: the device may do more."""
    INCONCLUSIVE = "inconclusive"
    """The trials contradict each other, or the search ended before its resolution."""
    INVALID = "invalid"
    """The generator could not carry a load, or the device died: there is no figure."""

    @property
    def is_sample(self) -> bool:
        """Whether comparisons and trends take its figure."""
        return self in (MeasurementStatus.OK, MeasurementStatus.DISTURBED, MeasurementStatus.LOWER_BOUND)


class Better(StrEnum):
    """Which way a metric improves."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


class Metric(Frozen):
    """One figure of a measurement."""

    value: Figure
    unit: str
    """`frames/s`, `ns`, `ratio`, `frames`, `bit/s`, `s`, `addresses`, `cycles/frame`."""
    better: Better = Better.NEITHER
    resolution: Annotated[float, Field(ge=0, le=1e30)] = 0.0
    """Comparisons take smaller values for this one: differences below it matter to nobody."""


class Curve(Frozen):
    """Points that belong together: a loss curve, throughput by message size, ..."""

    name: str
    x_name: str
    x_unit: str
    y_name: str
    y_unit: str
    points: tuple[tuple[Figure, Figure], ...]


class Outcome(Frozen):
    """What a method makes of its trials."""

    status: MeasurementStatus
    reasons: tuple[str, ...] = ()
    """Why the status is what it is, where that is not OK."""
    headline: str = ""
    """The metric that stands for the measurement in tables and comparisons; empty where there is none."""
    compared: tuple[str, ...] = ()
    """Further metrics that count in comparisons as the headline does: what the device costs."""
    metrics: dict[str, Metric] = {}
    curves: tuple[Curve, ...] = ()


class StepRecord(Frozen):
    """A test step, as it went."""

    name: str = ""
    when: str
    """`start`, `before`, `after`, `end`."""
    on: str
    """`dut`, `generator`, or the name of a machine."""
    run: str
    """The command."""
    status: int | None = None
    """How it ended; None: it did not."""
    output: str = ""
    """The end of what it said."""
    elapsed_s: Seconds = 0.0
    failure: str = ""
    """Why it is not what was expected; empty where it is."""


class Measurement(Frozen):
    """One method, once, of one frame size through one device."""

    number: Count
    """Order in the run."""
    dut: str
    """Label of the device, as in [`RunRecord.duts`]."""
    topology: str
    """`P2P`, `PVP`, `PVVP`."""
    method: str
    frame: FrameMix
    repetition: Count
    is_noise_floor: bool = False
    """Whether it only tells how far two measurements of the same thing lie apart: repetitions 0 and 1, 2 and 3, ... are pairs."""
    started_at: Moment
    elapsed_s: Seconds
    outcome: Outcome
    trials: tuple[TrialResult, ...] = ()
    dut_counters: dict[str, Annotated[int, Field(gt=-(2**64), lt=2**64)]] = {}
    """What the device itself counted, by port and cause, after the measurement."""
    steps: tuple[StepRecord, ...] = ()
    """Test steps around the measurement."""


class DutRecord(Frozen):
    """A device under test, as it was."""

    label: str
    driver: str
    """`linux-bridge`, `ovs`, `ovs-dpdk`, `testpmd`, `ringroad`."""
    settings: JsonObject = {}
    versions: dict[str, str] = {}
    """Of each program of the device and its guests."""
    ports: dict[str, str] = {}
    """What carries each of its ports, and in which mode."""
    build: str = ""
    """Where its programs are from: `prefix /opt/ovs-3.4`, `package ...`; empty: they are the machine's own."""
    guest_build: str = ""
    """The same of its guests."""
    files: dict[str, str] = {}
    """SHA-256 of what ran, by path: the executables of device and guests, what they mapped of their builds' folders, a guest's kernel. Of
    a package or image the path in it."""
    work_of_sender: str = ""
    """What of its work is done in the generator's thread, at the cost of its processor time; empty where nothing is, or it is not known."""

    def changed_files(self, later: DutRecord) -> str:
        """Return which files are others at a later start of the same device, for people; empty where none is."""
        return ", ".join(sorted(path for path in self.files.keys() & later.files if self.files[path] != later.files[path]))

    def identity(self) -> dict[str, str]:
        """Return what tells this build from another, by name, for people: libraries all in one."""
        facts = {name: told for name, told in (("build", self.build), ("guest build", self.guest_build)) if told}
        libraries = {path: sums for path, sums in self.files.items() if ".so" in path.rpartition("/")[2]}
        facts |= {f"sha256 of {path}": sums for path, sums in self.files.items() if path not in libraries}
        if libraries:
            both = sha256("".join(f"{sums}  {path}\n" for path, sums in sorted(libraries.items())).encode()).hexdigest()
            facts["libraries of the build"] = f"{len(libraries)}, sha256 of their sums {both}"
        return facts


class Series(Frozen):
    """A figure over time: the processor time and memory of a process, steal time, ..."""

    name: str
    subject: str
    """Which process or machine."""
    unit: str
    points: tuple[tuple[Moment, Figure], ...]
    """When, and the value."""


class LogExcerpt(Frozen):
    """What a program said."""

    source: str
    text: str
    is_cut: bool = False


class GeneratorCeiling(Frozen):
    """What the generator carries by itself over this transport: its loopback test."""

    transport: str
    frame: FrameMix
    ceiling_fps: FramesPerSecond
    """Of each direction, frames/s."""
    clock_error: Figure | None = None
    cause: str = ""
    """Why it was measured again: which trial contradicted the first ceiling; empty of that one."""


class NoiseFloor(Frozen):
    """How far two measurements of the same thing lie apart here."""

    dut: str
    method: str
    frame_name: str
    metric: str
    topology: str = ""
    """Empty in runs of an older ringroad-lab, which took all topologies together."""
    pairs: Annotated[int, Field(ge=1)]
    ratio_interval: tuple[Ratio, Ratio]
    """Interval of the ratio of the same build to itself."""


class RunRecord(Frozen):
    """A run, whole."""

    schema_version: Literal[1] = 1
    run_id: str
    """A UUID."""
    name: str
    """Of the scenario, or as the user called it."""
    scenario: JsonObject
    """The scenario as all its layers made it."""
    command: tuple[str, ...]
    """What repeats the run."""
    lab_version: str
    generator_version: str = ""
    started_at: Moment
    ended_at: Moment
    state: RunState
    failure: str = ""
    """Why it failed."""
    duts: tuple[DutRecord, ...]
    facts: dict[str, dict[str, str]]
    """By group (`machine`, `processor`, `memory`, `kernel`, `nics`, `isolation`, ...), then by name."""
    link_bps: Annotated[float, Field(gt=0, le=1e30)] | None = None
    """Nominal speed of the links, for line rates; None where the transport has none."""
    ceilings: tuple[GeneratorCeiling, ...] = ()
    noise_floors: tuple[NoiseFloor, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    series: tuple[Series, ...] = ()
    logs: tuple[LogExcerpt, ...] = ()
    deviations: tuple[str, ...] = ()
    """Where the run differs from the RFCs, a sentence each."""
    warnings: tuple[str, ...] = ()
    """What speaks against the figures, a sentence each: processor time that went to others, ..."""
    labels: dict[str, str] = {}
    """What the user tells of it: version under test, build, branch, ..."""
    planned_s: Seconds | None = None
    """What the plan said of the measurements that there are, s; None in runs that were killed, or of an older ringroad-lab."""
    took_s: Seconds | None = None
    """What they took, s; of a run that was resumed without the pauses."""
    supersedes: str | None = None
    """The run that this one takes the place of."""

    def scenario_tables(self) -> list[Mapping[str, JsonValue]]:
        """Return the scenarios as they were recorded: a record may be from elsewhere, and have any or none."""
        found = self.scenario.get("scenarios")
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
