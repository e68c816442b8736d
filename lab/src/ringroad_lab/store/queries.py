"""Queries of the store, and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ringroad_lab.record import Better, MeasurementStatus, RunState


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
    since: float | None = None
    """Started at or after, seconds since 1970."""
    until: float | None = None
    """Started before, seconds since 1970."""
    superseded: bool = True
    """Whether those that another run took the place of are among them."""


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
