"""Filters as conditions of SQL."""

from __future__ import annotations

from sqlalchemy import ColumnElement, ScalarSelect, exists, or_, select
from sqlalchemy.orm import InstrumentedAttribute, aliased

from ringroad_lab.store import models
from ringroad_lab.store.queries import MetricFilter, RunFilter
from ringroad_lab.store.rows import indexed


def run_conditions(which: RunFilter) -> list[ColumnElement[bool]]:
    """Return what a run has to fulfil."""
    run, dut, label, measurement = models.Run, models.RunDut, models.RunLabel, models.StoredMeasurement
    of_run = measurement.run_id == run.run_id
    conditions = _equal({run.name: which.name, run.state: which.state})
    if which.ended is not None:
        conditions.append(run.is_ended.is_(which.ended))
    conditions += _between(which.since, which.until)
    conditions += [
        exists().where(of_run, condition)
        for condition in _equal({measurement.topology: which.topology, measurement.method: which.method, measurement.frame: which.frame})
    ]
    if which.dut is not None:
        named = or_(dut.label == indexed(which.dut), dut.driver == indexed(which.dut))
        conditions.append(exists().where(dut.run_id == run.run_id, named))
    if which.version is not None:
        version = models.DutVersion
        of_program = version.version.contains(indexed(which.version), autoescape=True)
        of_label = label.value.contains(indexed(which.version), autoescape=True)
        conditions.append(
            or_(
                exists().where(dut.run_id == run.run_id, version.dut_id == dut.id, of_program),
                exists().where(label.run_id == run.run_id, of_label),
            )
        )
    conditions += [
        exists().where(label.run_id == run.run_id, label.name == indexed(name), label.value == indexed(value))
        for name, value in which.labels.items()
    ]
    if which.verdict is not None:
        conditions.append(last_verdict() == which.verdict)
    if not which.superseded:
        conditions.append(_has_no_successor())
    return conditions


def metric_conditions(which: MetricFilter) -> list[ColumnElement[bool]]:
    """Return what a run, its measurement and its metric, joined, have to fulfil."""
    run, measurement, metric = models.Run, models.StoredMeasurement, models.StoredMetric
    conditions = _equal(
        {
            run.name: which.name,
            run.run_id: which.run_id,
            measurement.topology: which.topology,
            measurement.method: which.method,
            measurement.frame: which.frame,
            metric.name: which.metric,
        }
    )
    conditions += [run.is_ended.is_(True), _has_no_successor(), *_between(which.since, which.until)]
    if which.dut is not None:
        conditions.append(or_(measurement.dut == indexed(which.dut), measurement.driver == indexed(which.dut)))
    return conditions


def last_verdict() -> ScalarSelect[str]:
    """Return what was last said of a run."""
    query = select(models.Judgement.verdict).where(models.Judgement.run_id == models.Run.run_id)
    return query.order_by(models.Judgement.id.desc()).limit(1).correlate(models.Run).scalar_subquery()


def _equal(wanted: dict[InstrumentedAttribute[str], str | None]) -> list[ColumnElement[bool]]:
    return [column == indexed(value) for column, value in wanted.items() if value is not None]


def _between(since: float | None, until: float | None) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if since is not None:
        conditions.append(models.Run.started_at >= since)
    if until is not None:
        conditions.append(models.Run.started_at < until)
    return conditions


def _has_no_successor() -> ColumnElement[bool]:
    successor = aliased(models.Run)
    return ~exists().where(successor.supersedes == models.Run.run_id)
