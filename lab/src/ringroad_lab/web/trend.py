"""One metric over all runs of a scenario, with its change points."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from statistics import median
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from sqlalchemy import select

from ringroad_lab.record import Better, MeasurementStatus
from ringroad_lab.statistics.change_points import MIN_CHANGE, ChangePoint, VisibleSteps, change_points, visible_steps
from ringroad_lab.statistics.verdict import Verdict
from ringroad_lab.store.models import Run, StoredMeasurement, StoredMetric
from ringroad_lab.store.queries import MetricPoint, TrendSubject
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.trial import Frozen
from ringroad_lab.web.run_query import Text


def _default_if_empty(value: Any) -> Any:  # noqa: ANN401
    return 100 * MIN_CHANGE if value == "" else value


class TrendQuery(Frozen):
    """The metric of a trend, from the query of a URL."""

    scenario: Text = None
    topology: Text = None
    dut: Text = None
    method: Text = None
    frame: Text = None
    metric: Text = None
    min_change_percent: Annotated[float, Field(ge=0, le=1000), BeforeValidator(_default_if_empty)] = 100 * MIN_CHANGE
    """Smallest step that is a change point."""


SUBJECT_FIELDS = tuple(TrendSubject.model_fields)
"""Choices from the outermost to the innermost."""


class TrendPoint(Frozen):
    """The result of one run: the median and the range of its repetitions."""

    run_id: str
    started_at: float
    """Start of the run, seconds since 1970."""
    median: float
    lowest: float
    highest: float
    repetitions: int
    has_lower_bound: bool
    """Whether a repetition reached the generator's ceiling: the device could be faster."""


class TrendStep(Frozen):
    """A change point for display."""

    point: ChangePoint
    run_id: str
    """The first run on the new level."""
    verdict: Verdict
    """Improvement or regression; inconclusive if the metric has no better direction."""


class Trend(Frozen):
    """A metric over all runs of a scenario that ended and were not superseded."""

    subject: TrendSubject
    unit: str
    better: Better
    points: tuple[TrendPoint, ...]
    steps: tuple[TrendStep, ...]
    visible: VisibleSteps
    """The steps that are detectable with this number of runs and this noise."""
    left_out: int
    """Number of measurements whose value is inconclusive, and therefore neither shown nor counted."""


class TrendChoice(Frozen):
    """One choice of a trend's metric: the options under the previous choices, and the chosen option."""

    field: str
    options: tuple[str, ...]
    chosen: str


def read_trend(store: ResultStore, subject: TrendSubject, min_change: float) -> Trend | None:
    """Return a trend; None if the store has no such metric."""
    points = store.metric_points(subject)
    if not points:
        return None
    # A metric whose unit changed starts a new series.
    unit, better = points[-1].unit, points[-1].better
    counted = [point for point in points if point.status.is_sample and point.unit == unit]
    by_run = tuple(_of_run(run_id, group) for run_id, group in groupby(counted, key=lambda point: point.run_id))
    series = [point.median for point in by_run]
    found = change_points(series, min_change=min_change)
    return Trend(
        subject=subject,
        unit=unit,
        better=better,
        points=by_run,
        steps=tuple(TrendStep(point=point, run_id=by_run[point.index].run_id, verdict=point.verdict(better)) for point in found),
        visible=visible_steps(series, found, min_change),
        left_out=len(points) - len(counted),
    )


def choose(store: ResultStore, query: TrendQuery) -> tuple[TrendChoice, ...]:
    """Return the choices of a trend's metric. A missing or unknown choice becomes the first option.

    Empty if the store has no measurements.
    """
    run, measurement, metric = Run, StoredMeasurement, StoredMetric
    with store.reading() as database:
        names = tuple(database.scalars(select(run.name).join(measurement, measurement.run_id == run.run_id).distinct().order_by(run.name)))
        if not names:
            return ()
        scenario = query.scenario if query.scenario in names else names[0]
        columns = (measurement.topology, measurement.dut, measurement.method, measurement.frame, metric.name, measurement.headline)
        metrics = (
            select(*columns)
            .join(run, run.run_id == measurement.run_id)
            .join(metric, metric.measurement_id == measurement.id)
            .where(run.name == scenario)
            .distinct()
        )
        rows = [tuple(row) for row in database.execute(metrics)]
    choices = [TrendChoice(field="scenario", options=names, chosen=scenario)]
    for position, field in enumerate(SUBJECT_FIELDS[1:]):
        options = {row[position] for row in rows}
        # The most requested options come first: throughput, and the headline metric of a method.
        preferred = {"method": {"throughput"}, "metric": {row[5] for row in rows}}.get(field, set())
        first = sorted(options, key=lambda option: (option not in preferred, _natural(option)))
        wanted = getattr(query, field)
        chosen = wanted if wanted in options else next(iter(first), "")
        choices.append(TrendChoice(field=field, options=tuple(first), chosen=chosen))
        rows = [row for row in rows if row[position] == chosen]
    return tuple(choices)


def _of_run(run_id: str, group: Iterable[MetricPoint]) -> TrendPoint:
    points = list(group)
    values = [point.value for point in points]
    return TrendPoint(
        run_id=run_id,
        started_at=points[0].run_started_at,
        median=median(values),
        lowest=min(values),
        highest=max(values),
        repetitions=len(values),
        has_lower_bound=any(point.status is MeasurementStatus.LOWER_BOUND for point in points),
    )


def _natural(text: str) -> tuple[int, str]:
    """Return a sort key: 64 comes before 1518, and numbers come before names."""
    return (int(text), "") if text.isdecimal() and len(text) < 10 else (10**10, text)
