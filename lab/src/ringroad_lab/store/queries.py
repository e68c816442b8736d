"""Queries of the store, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from ringroad_lab.record import Better, MeasurementStatus, RunState
from ringroad_lab.statistics.verdict import Verdict


class TesterVerdict(StrEnum):
    """What a tester says of a run."""

    PASS = "pass"
    FAIL = "fail"
    NEEDS_RERUN = "needs rerun"


@dataclass(frozen=True)
class RunFilter:
    """Which runs; those that all fields given let through."""

    name: str | None = None
    dut: str | None = None
    """Label or driver of one of its devices."""
    version: str | None = None
    """Part of the version of one of its devices' programs, or of a label's value."""
    state: RunState | None = None
    verdict: TesterVerdict | None = None
    finding: Verdict | None = None
    """What a comparison of it with another found in a headline metric."""
    since: float | None = None
    """Started at or after, seconds since 1970."""
    until: float | None = None
    """Started before, seconds since 1970."""
    superseded: bool = True
    """Whether those that another run took the place of are among them."""


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
    """What came of comparing a run with another, or two devices of one."""

    run_id: str
    baseline_run_id: str
    baseline_name: str
    """Of the baseline's run."""
    dut: str | None
    """Label of the candidate where both are devices of one run."""
    baseline_dut: str | None
    verdict: Verdict
    counts: Mapping[Verdict, int]
    """How many headline metrics have each verdict, the most severe first."""
    findings: tuple[Finding, ...]
    compared_at: float

    @property
    def baseline(self) -> str:
        """For people: the name and the beginning of the id of the run, or the label of the device."""
        return self.baseline_dut or f"{self.baseline_name} ({self.baseline_run_id[:8]})"

    @property
    def what_came(self) -> str:
        """For people: `2 regressions, 1 no difference` and the like."""
        return ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items()) or self.verdict


@dataclass(frozen=True)
class RunSummary:
    """A run, as lists show it."""

    run_id: str
    name: str
    state: RunState
    is_ended: bool
    """False while it runs, and where it was killed."""
    started_at: float
    ended_at: float
    lab_version: str
    duts: tuple[tuple[str, str], ...]
    """Label and driver of each."""
    versions: tuple[str, ...]
    """Program and version, each once."""
    labels: Mapping[str, str]
    statuses: Mapping[MeasurementStatus, int]
    """How many measurements of each status."""
    verdict: TesterVerdict | None
    supersedes: str | None
    superseded_by: tuple[str, ...]
    comparisons: tuple[StoredComparison, ...]
    """With others, the newest first."""

    def as_json(self) -> dict[str, Any]:
        """Return it as programs read it."""
        return {
            "run_id": self.run_id,
            "name": self.name,
            "state": self.state.value,
            "is_ended": self.is_ended,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "lab_version": self.lab_version,
            "duts": [{"label": label, "driver": driver} for label, driver in self.duts],
            "versions": list(self.versions),
            "labels": dict(self.labels),
            "statuses": {status.value: count for status, count in self.statuses.items()},
            "verdict": self.verdict.value if self.verdict else None,
            "supersedes": self.supersedes,
            "superseded_by": list(self.superseded_by),
            "comparisons": [asdict(comparison) for comparison in self.comparisons],
        }


@dataclass(frozen=True)
class MetricFilter:
    """Which figures; those that all fields given let through."""

    name: str | None = None
    """Of the run."""
    dut: str | None = None
    """Label."""
    topology: str | None = None
    method: str | None = None
    frame: str | None = None
    metric: str | None = None


@dataclass(frozen=True)
class MetricPoint:
    """A figure of a measurement, for trends: of runs that ended and that none took the place of."""

    run_id: str
    run_started_at: float
    repetition: int
    status: MeasurementStatus
    value: float
    unit: str
    better: Better


@dataclass(frozen=True)
class Choices:
    """What there is to filter by."""

    names: tuple[str, ...]
    duts: tuple[str, ...]
    """Labels and drivers."""


@dataclass(frozen=True)
class BaselineEntry:
    """A name given to a run."""

    name: str
    run_id: str
    set_at: float
