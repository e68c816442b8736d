"""The record of a run: settings, measurements and facts. The store keeps it, reports show it, exports contain it.

The schema only grows: new fields have a default, and existing fields do not change their meaning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from ringroad_lab.frame_size import FrameMix
from ringroad_lab.trial import Count, Disturbance, Figure, FramesPerSecond, Frozen, Moment, Seconds, TrialResult

Ratio = Annotated[float, Field(ge=1e-30, le=1e30)]


def _with_finite_numbers(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    # Python reads and writes NaN and Infinity, which are not JSON.
    json.dumps(value, allow_nan=False)
    return value


JsonObject = Annotated[dict[str, JsonValue], AfterValidator(_with_finite_numbers)]


class RunState(StrEnum):
    """State in which a run ended."""

    FINISHED = "finished"
    STOPPED = "stopped"
    """Stopped by the user: the measurements are kept, and the run can be resumed."""
    FAILED = "failed"
    NOT_INSTALLED = "not installed"
    """A build to be measured is not available, or does not run there."""


class MeasurementStatus(StrEnum):
    """Reliability of a measurement's figures, in the order of severity."""

    OK = "ok"
    DISTURBED = "disturbed"
    """Other programs took more of the run's processors than a limit in trials that the figure rests on: the device may do more. A
    measurement with a more severe status may be disturbed, too."""
    LOWER_BOUND = "lower-bound"
    """A load at the generator's ceiling passed, or frames were lost outside the device: the device may do more."""
    INCONCLUSIVE = "inconclusive"
    """The trials contradict each other, or the search ended before its resolution."""
    INVALID = "invalid"
    """The generator could not carry a load, or the device died: there is no figure."""

    @property
    def is_sample(self) -> bool:
        """Whether comparisons and trends use the figure."""
        return self in (MeasurementStatus.OK, MeasurementStatus.DISTURBED, MeasurementStatus.LOWER_BOUND)


class Better(StrEnum):
    """Direction in which a metric improves."""

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
    """Comparisons raise smaller values to this one: differences below it are irrelevant."""


class Curve(Frozen):
    """A series of points: a loss curve, throughput by message size, ..."""

    name: str
    x_name: str
    x_unit: str
    y_name: str
    y_unit: str
    points: tuple[tuple[Figure, Figure], ...]


GIVEN_UP = "given up: "
"""Begins the reason of measurements that were not tried, because the device failed to start again and again."""


class SweepPart(Frozen):
    """What others did during a part of a sweep over message sizes."""

    name: str
    """`sockperf-udp, 14 bytes`; `netpipe` for all of its sizes."""
    disturbance: Disturbance
    is_disturbed: bool = False
    """Whether others took more than the limit."""
    is_repeated: bool = False
    """Whether the part was repeated, and no figure rests on this run of it."""


class Outcome(Frozen):
    """Result of a method's trials."""

    status: MeasurementStatus
    reasons: tuple[str, ...] = ()
    """Reasons for a status other than OK."""
    headline: str = ""
    """The metric that represents the measurement in tables and comparisons; empty if there is none."""
    compared: tuple[str, ...] = ()
    """Further metrics that count like the headline in comparisons: the cost of the device."""
    metrics: dict[str, Metric] = {}
    curves: tuple[Curve, ...] = ()
    parts: tuple[SweepPart, ...] = ()
    """Parts of a sweep, with their repetitions."""


class StepRecord(Frozen):
    """Record of a test step that ran."""

    name: str = ""
    when: str
    """`start`, `before`, `after`, `end`."""
    on: str
    """`dut`, `generator`, or the name of a machine."""
    run: str
    """The command."""
    status: int | None = None
    """Exit status; None: the command did not end."""
    output: str = ""
    """The end of the command's output."""
    elapsed_s: Seconds = 0.0
    failure: str = ""
    """Difference from the expected result; empty if there is none."""


class Measurement(Frozen):
    """One run of one method with one frame size through one device."""

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
    """Whether it only serves to measure the spread of equal measurements: repetitions 0 and 1, 2 and 3, ... are pairs."""
    started_at: Moment
    elapsed_s: Seconds
    outcome: Outcome
    trials: tuple[TrialResult, ...] = ()
    dut_counters: dict[str, Annotated[int, Field(gt=-(2**64), lt=2**64)]] = {}
    """Counters of the device, by port and cause, after the measurement."""
    steps: tuple[StepRecord, ...] = ()
    """Test steps around the measurement."""

    @property
    def watched(self) -> tuple[TrialResult | SweepPart, ...]:
        """Everything whose disturbances are recorded."""
        return (*self.trials, *self.outcome.parts)


class DutRecord(Frozen):
    """Record of a device under test."""

    label: str
    driver: str
    """`forwarder`, `linux-bridge`, `ovs`, `ovs-dpdk`, `testpmd`, `ringroad`."""
    settings: JsonObject = {}
    versions: dict[str, str] = {}
    """Version of each program of the device and its guests."""
    ports: dict[str, str] = {}
    """Transport and mode of each port."""
    build: str = ""
    """Source of its programs: `prefix /opt/ovs-3.4`, `package ...`; empty: the machine's own."""
    guest_build: str = ""
    """Source of the guests' programs."""
    files: dict[str, str] = {}
    """SHA-256 of the files that ran, by path: the executables of device and guests, files that they mapped from their builds' folders, a
    guest's kernel. For a package or image, the path inside it."""
    guests: dict[str, str] = {}
    """Memory, processors and boot parameters of each virtual machine, by name."""
    work_of_sender: str = ""
    """The part of its work that runs in the generator's thread and takes the generator's processor time; empty: none, or unknown."""

    def changed_files(self, later: DutRecord) -> str:
        """Return the files that differ at a later start of the same device, for display; empty if there are none."""
        return ", ".join(sorted(path for path in self.files.keys() & later.files if self.files[path] != later.files[path]))

    def identity(self) -> dict[str, str]:
        """Return facts that identify this build, by name, for display; all libraries form one fact."""
        facts = {name: source for name, source in (("build", self.build), ("guest build", self.guest_build)) if source}
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
    """The process or machine."""
    unit: str
    points: tuple[tuple[Moment, Figure], ...]
    """Time and value."""


_LOG_CHARACTERS = 16_384
"""A log explains a failure, and must not fill the store."""


class LogExcerpt(Frozen):
    """Output of a program."""

    source: str
    text: str
    is_cut: bool = False

    def shortened(self) -> LogExcerpt:
        """Return the end of the output, as the record keeps it."""
        is_cut = self.is_cut or len(self.text) > _LOG_CHARACTERS
        return self.model_copy(update={"text": self.text[-_LOG_CHARACTERS:], "is_cut": is_cut})


class GeneratorCeiling(Frozen):
    """Maximum load of the generator by itself over this transport, measured by its loopback test."""

    transport: str
    frame: FrameMix
    ceiling_fps: FramesPerSecond
    """Per direction, frames/s."""
    clock_error: Figure | None = None
    cause: str = ""
    """Reason for measuring it again: the trial that contradicted the first ceiling; empty for the first ceiling."""


class NoiseFloor(Frozen):
    """Spread of repeated measurements of the same device and metric."""

    dut: str
    method: str
    frame_name: str
    metric: str
    topology: str = ""
    """Empty in runs of an older ringroad-lab, which combined all topologies."""
    pairs: Annotated[int, Field(ge=1)]
    ratio_interval: tuple[Ratio, Ratio]
    """Interval of the ratio of the same build to itself."""


class RunRecord(Frozen):
    """Complete record of a run."""

    schema_version: Literal[1] = 1
    run_id: str
    """A UUID."""
    name: str
    """Name of the scenario, or the user's name for the run."""
    scenario: JsonObject
    """The resolved scenario with all its layers."""
    command: tuple[str, ...]
    """Command that repeats the run."""
    lab_version: str
    generator_version: str = ""
    started_at: Moment
    ended_at: Moment
    state: RunState
    failure: str = ""
    """Reason of the failure."""
    duts: tuple[DutRecord, ...]
    facts: dict[str, dict[str, str]]
    """Facts by group (`machine`, `processor`, `memory`, `kernel`, `nics`, `isolation`, ...), then by name."""
    link_bps: Annotated[float, Field(gt=0, le=1e30)] | None = None
    """Nominal speed of the links, for line rates; None if the transport has none."""
    ceilings: tuple[GeneratorCeiling, ...] = ()
    noise_floors: tuple[NoiseFloor, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    series: tuple[Series, ...] = ()
    logs: tuple[LogExcerpt, ...] = ()
    deviations: tuple[str, ...] = ()
    """Deviations from the RFCs, a sentence each."""
    warnings: tuple[str, ...] = ()
    """Doubts about the figures, a sentence each: processor time taken by others, ..."""
    labels: dict[str, str] = {}
    """Labels that the user set: version under test, build, branch, ..."""
    planned_s: Seconds | None = None
    """Planned duration of the recorded measurements, s; None in runs that were killed, or of an older ringroad-lab."""
    took_s: Seconds | None = None
    """Actual duration of the measurements, s; for a resumed run without the pauses."""
    supersedes: str | None = None
    """The run that this run replaces."""

    def scenario_tables(self) -> list[Mapping[str, JsonValue]]:
        """Return the recorded scenarios. A record from another source may have any content, or none."""
        found = self.scenario.get("scenarios")
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
