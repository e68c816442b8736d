"""Writes runs and measurements as indexed rows, and reads them back from the raw JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from ringroad_lab.errors import StoreError
from ringroad_lab.record import Measurement, RunRecord, RunState
from ringroad_lab.store import models

RUN_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
# PostgreSQL cannot index longer texts. The raw JSON has the whole text.
_INDEXED_CHARACTERS = 250
# Maximum of PostgreSQL's integers.
_GREATEST_NUMBER = 2**31 - 1


class RunRefusedError(StoreError):
    """The record is not a run that the store can hold."""


class RunConflictError(RunRefusedError):
    """The id of a run is in the store with other content."""


def indexed(text: str) -> str:
    """Return a text as stored in indexed columns."""
    # PostgreSQL does not accept NUL in a text.
    return text.replace("\0", "\ufffd")[:_INDEXED_CHARACTERS]


def existing_run(session: Session, run_id: str, *, is_locked: bool = False) -> models.Run:
    """Return the row of a run, or raise StoreError; a locked run cannot be changed by other processes until this transaction ends."""
    # SQLite ignores the lock: it has one writer at a time anyway.
    run = session.get(models.Run, run_id, with_for_update=is_locked)
    if run is None:
        raise StoreError(f"no run {run_id} in the result store")
    return run


def unfinished_run(session: Session, run_id: str) -> models.Run:
    """Return the row of a run that accepts measurements, or raise StoreError."""
    run = existing_run(session, run_id, is_locked=True)
    if run.is_ended and run.state == RunState.FINISHED:
        raise StoreError(f"run {run_id} is finished: no measurement can be added; a new run can supersede it")
    return run


def write_head(session: Session, record: RunRecord, *, is_ended: bool) -> models.Run:
    """Write and index a run without its measurements; return its row."""
    head = record.model_copy(update={"measurements": ()})
    run = session.get(models.Run, record.run_id)
    if run is None:
        if not RUN_ID.fullmatch(record.run_id):
            raise RunRefusedError(f"{record.run_id[:80]!r} cannot be the id of a run: use a UUID, or up to 64 letters, digits and dashes")
        run = models.Run(run_id=record.run_id)
        session.add(run)
    run.name = indexed(record.name)
    run.state = record.state
    run.is_ended = is_ended
    run.started_at = record.started_at
    run.ended_at = record.ended_at
    run.lab_version = indexed(record.lab_version)
    run.generator_version = indexed(record.generator_version)
    run.supersedes = indexed(record.supersedes)[:64] if record.supersedes else None
    run.heads.append(models.RunHead(sequence=len(run.heads), raw=head.model_dump_json()))
    # The index is rebuilt: new labels and versions may be known now.
    run.labels.clear()
    run.duts.clear()
    session.flush()
    labels = {indexed(name): indexed(value) for name, value in record.labels.items()}
    run.labels.extend(models.RunLabel(name=name, value=value) for name, value in labels.items())
    for position, dut in enumerate(record.duts):
        versions = {indexed(program): indexed(version) for program, version in dut.versions.items()}
        run.duts.append(
            models.RunDut(
                position=position,
                label=indexed(dut.label),
                driver=indexed(dut.driver),
                versions=[models.DutVersion(program=program, version=version) for program, version in versions.items()],
            )
        )
    session.flush()
    return run


def measurement_row(run: models.Run, measurement: Measurement) -> models.StoredMeasurement:
    """Return a measurement of a run as a row."""
    if max(measurement.number, measurement.repetition) > _GREATEST_NUMBER:
        raise RunRefusedError(f"run {run.run_id} has a measurement whose number or repetition is greater than {_GREATEST_NUMBER}")
    outcome, label = measurement.outcome, indexed(measurement.dut)
    metrics = {indexed(name): metric for name, metric in outcome.metrics.items()}
    return models.StoredMeasurement(
        run_id=run.run_id,
        number=measurement.number,
        dut=label,
        driver=next((dut.driver for dut in run.duts if dut.label == label), ""),
        topology=indexed(measurement.topology),
        method=indexed(measurement.method),
        frame=indexed(measurement.frame.name),
        repetition=measurement.repetition,
        started_at=measurement.started_at,
        elapsed_s=measurement.elapsed_s,
        status=measurement.outcome.status,
        headline=indexed(outcome.headline),
        raw=measurement.model_dump_json(),
        metrics=[
            models.StoredMetric(name=name, value=metric.value, unit=indexed(metric.unit), better=metric.better)
            for name, metric in metrics.items()
        ],
    )


def by_number(measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Return measurements sorted by number."""
    return tuple(sorted(measurements, key=lambda measurement: measurement.number))


def in_order(record: RunRecord) -> RunRecord:
    """Return a record with its measurements sorted by number, as the store returns it."""
    return record.model_copy(update={"measurements": by_number(record.measurements)})


def read_measurements(session: Session, run_id: str) -> tuple[Measurement, ...]:
    """Return the measurements of a run, sorted by number."""
    rows = select(models.StoredMeasurement.raw).filter_by(run_id=run_id).order_by(models.StoredMeasurement.number)
    return tuple(Measurement.model_validate_json(raw) for raw in session.scalars(rows))


def read_head(session: Session, run_id: str) -> RunRecord:
    """Return a run without its measurements, or raise StoreError."""
    head = session.scalar(select(models.RunHead.raw).filter_by(run_id=run_id).order_by(models.RunHead.sequence.desc()).limit(1))
    if head is None:
        raise StoreError(f"no run {run_id} in the result store")
    try:
        return RunRecord.model_validate_json(head)
    except ValidationError as error:
        raise _unreadable(run_id, error) from error


def read_run(session: Session, run_id: str) -> RunRecord:
    """Return a whole run, or raise StoreError."""
    record = read_head(session, run_id)
    try:
        return record.model_copy(update={"measurements": read_measurements(session, run_id)})
    except ValidationError as error:
        raise _unreadable(run_id, error) from error


def _unreadable(run_id: str, error: ValidationError) -> StoreError:
    return StoreError(f"run {run_id} in the result store cannot be read by this ringroad-lab: {error}")
