"""Filters for store queries, and query results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from ringroad_lab.record import Better, MeasurementStatus, RunState
from ringroad_lab.statistics.verdict import Verdict
from ringroad_lab.trial import Frozen


class TesterVerdict(StrEnum):
    """A tester's verdict on a run."""

    PASS = "pass"
    FAIL = "fail"
    NEEDS_RERUN = "needs rerun"


@dataclass(frozen=True)
class RunFilter:
    """Selects runs that match all given fields."""

    name: str | None = None
    dut: str | None = None
    """Label or driver of one of its devices."""
    version: str | None = None
    """Part of the version of one of its devices' programs, or of a label's value."""
    state: RunState | None = None
    verdict: TesterVerdict | None = None
    finding: Verdict | None = None
    """Verdict on a headline metric in one of its comparisons."""
    since: float | None = None
    """Started at or after, seconds since 1970."""
    until: float | None = None
    """Started before, seconds since 1970."""
    superseded: bool = True
    """Whether superseded runs are included."""


@dataclass(frozen=True)
class Finding:
    """The verdict of a comparison on a headline metric."""

    topology: str
    dut: str
    method: str
    frame: str
    metric: str
    verdict: Verdict
    ratio: float | None
    """Candidate to baseline."""


@dataclass(frozen=True)
class StoredComparison:
    """The result of comparing two runs, or two devices of one run."""

    run_id: str
    baseline_run_id: str
    baseline_name: str
    """Name of the baseline run."""
    dut: str | None
    """Label of the candidate if both sides are devices of one run."""
    baseline_dut: str | None
    verdict: Verdict
    counts: Mapping[Verdict, int]
    """Number of headline metrics by verdict, the most severe first."""
    findings: tuple[Finding, ...]
    compared_at: float

    @property
    def baseline(self) -> str:
        """Name for users: the name and the short id of the run, or the label of the device."""
        return self.baseline_dut or f"{self.baseline_name} ({self.baseline_run_id[:8]})"

    @property
    def what_came(self) -> str:
        """Result for users, such as `2 regression, 1 no difference`."""
        return ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items()) or self.verdict


@dataclass(frozen=True)
class RunSummary:
    """A run as shown in lists."""

    run_id: str
    name: str
    state: RunState
    is_ended: bool
    """False while the run is active, and after it was killed."""
    started_at: float
    ended_at: float
    lab_version: str
    duts: tuple[tuple[str, str], ...]
    """Label and driver of each device."""
    versions: tuple[str, ...]
    """Program and version, each once."""
    labels: Mapping[str, str]
    statuses: Mapping[MeasurementStatus, int]
    """Number of measurements by status."""
    verdict: TesterVerdict | None
    supersedes: str | None
    superseded_by: tuple[str, ...]
    comparisons: tuple[StoredComparison, ...]
    """Comparisons with other runs, the newest first."""

    def as_json(self) -> dict[str, Any]:
        """Return the summary for programs (JSON)."""
        return asdict(self) | {"duts": [{"label": label, "driver": driver} for label, driver in self.duts]}


class TrendSubject(Frozen):
    """The metric of a trend."""

    scenario: str
    topology: str
    dut: str
    """Label of the device."""
    method: str
    frame: str
    metric: str


@dataclass(frozen=True)
class MetricPoint:
    """A metric of a measurement, for trends; only from runs that ended and are not superseded."""

    run_id: str
    run_started_at: float
    repetition: int
    status: MeasurementStatus
    value: float
    unit: str
    better: Better


@dataclass(frozen=True)
class Choices:
    """Values to filter by."""

    names: tuple[str, ...]
    duts: tuple[str, ...]
    """Labels and drivers."""
