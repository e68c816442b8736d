"""Filters as SQL conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, ScalarSelect, exists, or_, select
from sqlalchemy.orm import InstrumentedAttribute, aliased

from ringroad_lab.record import RunState
from ringroad_lab.store import models
from ringroad_lab.store.queries import RunFilter, TesterVerdict, TrendSubject
from ringroad_lab.store.rows import indexed


def run_conditions(which: RunFilter) -> list[ColumnElement[bool]]:
    """Return the conditions on a run."""
    run, dut, label = models.Run, models.RunDut, models.RunLabel
    conditions = _equal({run.name: which.name, run.state: which.state})
    if which.since is not None:
        conditions.append(run.started_at >= which.since)
    if which.until is not None:
        conditions.append(run.started_at < which.until)
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
    if which.verdict is not None:
        conditions.append(last_verdict() == which.verdict)
    if which.finding is not None:
        comparison, finding = models.Comparison, models.StoredFinding
        found = (comparison.run_id == run.run_id, finding.comparison_id == comparison.id, finding.verdict == which.finding)
        conditions.append(exists().where(*found))
    if not which.superseded:
        conditions.append(_has_no_successor())
    return conditions


def metric_conditions(subject: TrendSubject) -> list[ColumnElement[bool]]:
    """Return the conditions on a run joined with its measurements and metrics."""
    run, measurement, metric = models.Run, models.StoredMeasurement, models.StoredMetric
    wanted = {
        run.name: subject.scenario,
        measurement.dut: subject.dut,
        measurement.topology: subject.topology,
        measurement.method: subject.method,
        measurement.frame: subject.frame,
        metric.name: subject.metric,
    }
    return [*_equal(wanted), run.is_ended.is_(True), _has_no_successor()]


def last_verdict() -> ScalarSelect[TesterVerdict]:
    """Return the latest tester verdict of a run."""
    query = select(models.StoredVerdict.verdict).where(models.StoredVerdict.run_id == models.Run.run_id)
    return query.order_by(models.StoredVerdict.id.desc()).limit(1).correlate(models.Run).scalar_subquery()


def _equal(wanted: Mapping[InstrumentedAttribute[Any], str | None]) -> list[ColumnElement[bool]]:
    return [column == indexed(value) for column, value in wanted.items() if value is not None]


def _has_no_successor() -> ColumnElement[bool]:
    successor = aliased(models.Run)
    # A run that failed or is under way replaces nothing.
    is_finished = (successor.is_ended.is_(True), successor.state == RunState.FINISHED)
    return ~exists().where(successor.supersedes == models.Run.run_id, *is_finished)
