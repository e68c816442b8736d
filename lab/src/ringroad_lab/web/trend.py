"""One figure over all runs of a scenario, with its change points."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from statistics import median
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from sqlalchemy import select

from ringroad_lab.record import Better, MeasurementStatus
from ringroad_lab.statistics.change_points import MIN_CHANGE, ChangePoint, VisibleSteps, change_points, visible_steps
from ringroad_lab.statistics.verdict import Verdict
from ringroad_lab.store.models import Run, StoredMeasurement, StoredMetric
from ringroad_lab.store.queries import MetricFilter, MetricPoint
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.trial import Frozen
from ringroad_lab.web.run_query import Text

# What a measurement of these is worth can be set beside others.


def _default_if_empty(value: Any) -> Any:  # noqa: ANN401
    return 100 * MIN_CHANGE if value == "" else value


class TrendQuery(BaseModel):
    """Which figure, as a URL says it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scenario: Text = None
    topology: Text = None
    dut: Text = None
    method: Text = None
    frame: Text = None
    metric: Text = None
    min_change_percent: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False), BeforeValidator(_default_if_empty)] = 100 * MIN_CHANGE
    """Smaller steps are no change points."""


class TrendSubject(Frozen):
    """Which figure."""

    scenario: str
    topology: str
    dut: str
    """Label."""
    method: str
    frame: str
    metric: str


# From the outermost choice to the innermost.
SUBJECT_FIELDS = ("scenario", "topology", "dut", "method", "frame", "metric")


class TrendPoint(Frozen):
    """What came of one run: the median of its repetitions, and how far they lie apart."""

    run_id: str
    started_at: float
    """Of the run, seconds since 1970."""
    median: float
    lowest: float
    highest: float
    repetitions: int
    has_lower_bound: bool
    """Whether the generator's ceiling passed in one of them: the device may do more."""


class TrendStep(Frozen):
    """A change point, as it is shown."""

    point: ChangePoint
    run_id: str
    """The first run on the new level."""
    verdict: Verdict
    """Improvement or regression; inconclusive, where neither way is the better one."""


class Trend(Frozen):
    """A figure over all runs of a scenario that ended and that none took the place of."""

    subject: TrendSubject
    unit: str
    better: Better
    points: tuple[TrendPoint, ...]
    steps: tuple[TrendStep, ...]
    visible: VisibleSteps
    """Which steps so many runs with such noise can show."""
    left_out: int
    """Measurements with a figure that is inconclusive, and so neither shown nor counted."""


class TrendChoice(Frozen):
    """One choice of a trend's figure: what there is to choose from under the choices before it, and what is chosen."""

    field: str
    options: tuple[str, ...]
    chosen: str


def read_trend(store: ResultStore, subject: TrendSubject, min_change: float) -> Trend | None:
    """Return a trend; None where the store has no such figure."""
    points = store.metric_points(
        MetricFilter(
            name=subject.scenario,
            topology=subject.topology,
            dut=subject.dut,
            method=subject.method,
            frame=subject.frame,
            metric=subject.metric,
        )
    )
    if not points:
        return None
    # A figure whose unit changed began anew.
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
    """Return the choices of a trend's figure. What is not chosen, or not there, becomes the first that is.

    Empty where the store has no figure.
    """
    run, measurement, metric = Run, StoredMeasurement, StoredMetric
    with store.reading() as database:
        names = tuple(database.scalars(select(run.name).join(measurement, measurement.run_id == run.run_id).distinct().order_by(run.name)))
        if not names:
            return ()
        scenario = query.scenario if query.scenario in names else names[0]
        columns = (measurement.topology, measurement.dut, measurement.method, measurement.frame, metric.name, measurement.headline)
        figures = (
            select(*columns)
            .join(run, run.run_id == measurement.run_id)
            .join(metric, metric.measurement_id == measurement.id)
            .where(run.name == scenario)
            .distinct()
        )
        rows = [tuple(row) for row in database.execute(figures)]
    choices = [TrendChoice(field="scenario", options=names, chosen=scenario)]
    for position, field in enumerate(SUBJECT_FIELDS[1:]):
        options = {row[position] for row in rows}
        # What most ask for comes first: throughput, and of a method's metrics the headline.
        asked = {"method": {"throughput"}, "metric": {row[5] for row in rows}}.get(field, set())
        first = sorted(options, key=lambda option: (option not in asked, _natural(option)))
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
    """64 comes before 1518, and numbers before names."""
    return (int(text), "") if text.isdecimal() and len(text) < 10 else (10**10, text)
