"""The result store: runs are appended, measurement by measurement, and never edited."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from sqlalchemy import func, select
from sqlalchemy.orm import InstrumentedAttribute, Session, selectinload

from ringroad_lab.errors import StoreError, StoreFailedError
from ringroad_lab.facts.machine import is_same_machine
from ringroad_lab.record import Measurement, MeasurementStatus, RunRecord, RunState
from ringroad_lab.store import models
from ringroad_lab.store.comparisons import forget_comparisons, read_comparisons, write_comparison
from ringroad_lab.store.conditions import last_verdict, metric_conditions, run_conditions
from ringroad_lab.store.database import DATABASE_ERRORS, for_writing, open_database, why
from ringroad_lab.store.location import parse_location
from ringroad_lab.store.queries import (
    Choices,
    MetricPoint,
    RunFilter,
    RunSummary,
    StoredComparison,
    TesterVerdict,
    TrendSubject,
)
from ringroad_lab.store.rows import (
    RunConflictError,
    RunRefusedError,
    by_number,
    existing_run,
    in_order,
    measurement_row,
    read_head,
    read_measurements,
    read_run,
    unfinished_run,
    write_head,
)

if TYPE_CHECKING:
    from ringroad_lab.comparison import RunComparison

# Reserved names, which cannot name a baseline.
LATEST = "latest"
LAST_STABLE = "last-stable"
_BASELINE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SHORTEST_PREFIX = 4


class ResultStore:
    """Stores runs, comparisons and verdicts. Safe for several processes and threads at once.

    Every method raises StoreFailedError if the database fails.
    """

    def __init__(self, location: str | None = None) -> None:
        """Open an SQLite file or the URL of a database; None is the user's default file.

        Raises:
            StoreError: the store cannot be opened, is not a result store, or is newer than this program.
        """
        self._url = parse_location(location)
        self._engine = open_database(self._url)
        self._writing_engine = for_writing(self._engine)
        self._check: Callable[[Session], None] = lambda _session: None

    @property
    def location(self) -> str:
        """The path or URL of the store, without a password; for users."""
        return str(self._url.database) if self._url.drivername == "sqlite" else self._url.render_as_string()

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def fenced(self, check: Callable[[Session], None]) -> ResultStore:
        """Return the same store with a check at the start of each write transaction; if the check raises, nothing is written."""
        fenced = copy.copy(self)
        fenced._check = check
        return fenced

    def __enter__(self) -> ResultStore:
        """Return the store."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Close all connections."""
        self.close()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Yield a session for queries."""
        try:
            with Session(self._engine) as session:
                yield session
        except DATABASE_ERRORS as error:
            raise StoreFailedError(f"result store {self.location}: {why(error)}") from error

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Yield a session; commit its changes at the end, or roll them back if an exception is raised. Its rows can be read afterwards."""
        try:
            with Session(self._writing_engine, expire_on_commit=False) as session, session.begin():
                self._check(session)
                yield session
        except DATABASE_ERRORS as error:
            raise StoreFailedError(f"result store {self.location}: {why(error)}") from error

    # Runs

    def begin_run(self, record: RunRecord) -> None:
        """Store a run that starts, with everything known so far, as if it were stopped immediately.

        Raises:
            StoreError: its id is already stored, or it has measurements.
        """
        if record.measurements:
            raise StoreError(f"run {record.run_id} has measurements before it begins")
        with self.writing() as session:
            if session.get(models.Run, record.run_id) is not None:
                raise StoreError(f"run {record.run_id} is already in the store")
            write_head(session, record, is_ended=False)

    def add_measurement(self, run_id: str, measurement: Measurement) -> None:
        """Append a measurement to a run that is not finished.

        Raises:
            StoreError: the run is unknown, is finished, or already has a measurement with this number.
        """
        with self.writing() as session:
            run = unfinished_run(session, run_id)
            taken = select(models.StoredMeasurement.id).filter_by(run_id=run_id, number=measurement.number)
            if session.scalar(taken) is not None:
                raise StoreError(f"run {run_id} already has a measurement {measurement.number}")
            run.is_ended = False
            session.add(measurement_row(run, measurement))
            forget_comparisons(session, run_id)

    def end_run(self, record: RunRecord) -> None:
        """Store the end of a run, with everything known now. A stopped or failed run can resume and end again.

        The measurements were appended before; `record.measurements` is empty or equal to them.

        Raises:
            StoreError: the run is unknown, is finished, or has other measurements.
        """
        with self.writing() as session:
            unfinished_run(session, record.run_id)
            if record.measurements and read_measurements(session, record.run_id) != by_number(record.measurements):
                raise StoreError(f"run {record.run_id} has other measurements than were stored before its end")
            write_head(session, record, is_ended=True)

    def add_run(self, record: RunRecord) -> bool:
        """Store a whole run; return False if the identical run is already stored.

        Raises:
            RunConflictError: its id is stored with other content.
            RunRefusedError: the record is not a valid run.
        """
        return self.add_runs((record,)) == 1

    def add_runs(self, records: Sequence[RunRecord]) -> int:
        """Store whole runs, all or none; return how many were new.

        Raises:
            RunConflictError: an id is stored with other content.
            RunRefusedError: a record is not a valid run.
        """
        added = 0
        with self.writing() as session:
            for record in records:
                numbers = [measurement.number for measurement in record.measurements]
                if len(set(numbers)) < len(numbers):
                    raise RunRefusedError(f"run {record.run_id} has several measurements with the same number")
                if session.get(models.Run, record.run_id) is None:
                    run = write_head(session, record, is_ended=True)
                    session.add_all(measurement_row(run, measurement) for measurement in record.measurements)
                    session.flush()
                    added += 1
                elif in_order(record) != read_run(session, record.run_id):
                    raise RunConflictError(
                        f"run {record.run_id} is in the store with other content; a run is never edited: "
                        f"give the new run its own id, and set its `supersedes` to this id"
                    )
        return added

    def get_run(self, run_id: str) -> RunRecord:
        """Return a whole run; if the run has not ended, everything that is stored of it.

        Raises:
            StoreError: the run is unknown.
        """
        with self.reading() as session:
            return read_run(session, run_id)

    def resolve(self, text: str, beside: RunRecord | None = None) -> str:
        """Return the id of the run that is named by its id, the beginning of its id, a baseline, `latest` or `last-stable`.

        With `beside`, `last-stable` is the last stable run of the same scenario on the same machine.

        Raises:
            StoreError: no run matches, or several do.
        """
        if text == LATEST:
            latest = self.summaries(limit=1)
            if not latest:
                raise StoreError(f"result store {self.location} is empty: measure with `ringroad-lab run`, or import results")
            return latest[0].run_id
        if text == LAST_STABLE:
            stable = self.last_stable(beside.name if beside else None, beside.facts if beside else None)
            if stable is None:
                raise StoreError(self._why_none_is_stable(beside))
            return stable
        with self.reading() as session:
            if session.get(models.Run, text) is not None:
                return text
            named = session.scalar(select(models.Baseline.run_id).filter_by(name=text).order_by(models.Baseline.id.desc()).limit(1))
            if named is not None:
                return named
            if len(text) >= _SHORTEST_PREFIX:
                found = session.scalars(select(models.Run.run_id).where(models.Run.run_id.startswith(text, autoescape=True)).limit(2)).all()
                if len(found) == 1:
                    return found[0]
                if found:
                    raise StoreError(f"several runs have an id that begins with {text!r}: write more of the id")
        raise StoreError(f"no run or baseline {text!r} in result store {self.location}: `ringroad-lab runs` lists all runs")

    # Queries

    def summaries(self, which: RunFilter | None = None, *, limit: int = 100, offset: int = 0) -> list[RunSummary]:
        """Return runs, the newest first."""
        query = (
            select(models.Run)
            .where(*run_conditions(which or RunFilter()))
            .options(selectinload(models.Run.labels), selectinload(models.Run.duts).selectinload(models.RunDut.versions))
            .order_by(models.Run.started_at.desc(), models.Run.run_id)
            .limit(limit)
            .offset(offset)
        )
        with self.reading() as session:
            return _summarize(session, session.scalars(query).all())

    def count(self, which: RunFilter | None = None) -> int:
        """Return the number of runs."""
        with self.reading() as session:
            return session.scalar(select(func.count()).select_from(models.Run).where(*run_conditions(which or RunFilter()))) or 0

    def metric_points(self, subject: TrendSubject) -> list[MetricPoint]:
        """Return metrics, sorted by start of the run and number of the measurement."""
        run, measurement, metric = models.Run, models.StoredMeasurement, models.StoredMetric
        query = (
            select(run.run_id, run.started_at, measurement.repetition, measurement.status, metric.value, metric.unit, metric.better)
            .join(measurement, measurement.run_id == run.run_id)
            .join(metric, metric.measurement_id == measurement.id)
            .where(*metric_conditions(subject))
            .order_by(run.started_at, run.run_id, measurement.number, metric.name)
        )
        with self.reading() as session:
            return [MetricPoint(*row) for row in session.execute(query)]

    def choices(self) -> Choices:
        """Return the values to filter by."""
        with self.reading() as session:

            def distinct(*columns: InstrumentedAttribute[str]) -> tuple[str, ...]:
                return tuple(sorted({value for column in columns for value in session.scalars(select(column).distinct())}))

            return Choices(names=distinct(models.Run.name), duts=distinct(models.RunDut.label, models.RunDut.driver))

    # Comparisons

    def keep_comparison(self, baseline_run_id: str, run_id: str, comparison: RunComparison) -> None:
        """Store the comparison of two runs, or of two devices of one run; replace an earlier comparison of the same sides.

        Raises:
            StoreError: a run is unknown.
        """
        with self.writing() as session:
            write_comparison(session, baseline_run_id, run_id, comparison)

    def comparisons(self, run_id: str) -> tuple[StoredComparison, ...]:
        """Return the comparisons of a run with other runs, the newest first."""
        with self.reading() as session:
            return read_comparisons(session, [run_id]).get(run_id, ())

    # Baselines

    def set_baseline(self, name: str, run_id: str) -> None:
        """Give a name to a run; if another run has the name, move it.

        Raises:
            StoreError: the name is invalid, or the run is unknown.
        """
        if not _BASELINE_NAME.fullmatch(name) or name in (LATEST, LAST_STABLE):
            raise StoreError(
                f"{name!r} cannot name a baseline: use up to 100 letters, digits, dots, dashes and underscores, "
                f"but not {LATEST} or {LAST_STABLE}"
            )
        with self.writing() as session:
            existing_run(session, run_id)
            session.add(models.Baseline(name=name, run_id=run_id, set_at=time.time()))

    def baselines(self) -> list[models.Baseline]:
        """Return all baselines, sorted by name."""
        newest = select(func.max(models.Baseline.id)).group_by(models.Baseline.name)
        query = select(models.Baseline).where(models.Baseline.id.in_(newest)).order_by(models.Baseline.name)
        with self.reading() as session:
            return list(session.scalars(query))

    def last_stable(self, name: str | None = None, facts: Mapping[str, Mapping[str, str]] | None = None) -> str | None:
        """Return the id of the newest finished run whose last judgement is `pass`; None if there is none.

        If `name` is given, only runs with this name count; if `facts` is given, only runs on the machine that the facts describe.
        """
        which = RunFilter(name=name, state=RunState.FINISHED, verdict=TesterVerdict.PASS, superseded=False)
        for summary in self.summaries(which, limit=1 if facts is None else self.count(which)):
            if facts is None or is_same_machine(self._head(summary.run_id).facts, facts):
                return summary.run_id
        return None

    def _head(self, run_id: str) -> RunRecord:
        with self.reading() as session:
            return read_head(session, run_id)

    def _why_none_is_stable(self, beside: RunRecord | None) -> str:
        of_scenario = f" of {beside.name}" if beside else ""
        elsewhere = self.last_stable(beside.name) if beside else None
        if elsewhere is None:
            return (
                f"no finished run{of_scenario} has a tester's verdict `pass`, so there is no last stable run: "
                "set the verdict with `ringroad-lab judge RUN pass`"
            )
        machine = self._head(elsewhere).facts.get("machine", {}).get("name", "another machine")
        return (
            f"no run{of_scenario} on this machine has a tester's verdict `pass`; run {elsewhere[:8]} has, but on {machine}: "
            f"a difference can come from the machines. To compare with this run nevertheless, use --baseline {elsewhere[:8]}"
        )


def _summarize(session: Session, runs: Sequence[models.Run]) -> list[RunSummary]:
    ids = [run.run_id for run in runs]
    measurement = models.StoredMeasurement
    counts = select(measurement.run_id, measurement.status, func.count()).where(measurement.run_id.in_(ids))
    statuses: dict[str, dict[MeasurementStatus, int]] = {}
    for run_id, status, count in session.execute(counts.group_by(measurement.run_id, measurement.status)):
        statuses.setdefault(run_id, {})[status] = count
    successors: dict[str, list[str]] = {}
    later = select(models.Run.supersedes, models.Run.run_id).where(models.Run.supersedes.in_(ids)).order_by(models.Run.started_at)
    for superseded, run_id in session.execute(later):
        successors.setdefault(str(superseded), []).append(run_id)
    judged = select(models.Run.run_id, last_verdict()).where(models.Run.run_id.in_(ids))
    verdicts = dict(session.execute(judged).all())
    comparisons = read_comparisons(session, ids)
    return [
        RunSummary(
            run_id=run.run_id,
            name=run.name,
            state=run.state,
            is_ended=run.is_ended,
            started_at=run.started_at,
            ended_at=run.ended_at,
            lab_version=run.lab_version,
            duts=tuple((dut.label, dut.driver) for dut in run.duts),
            versions=tuple(sorted({f"{version.program} {version.version}" for dut in run.duts for version in dut.versions})),
            labels={label.name: label.value for label in run.labels},
            statuses=statuses.get(run.run_id, {}),
            verdict=verdicts[run.run_id],
            supersedes=run.supersedes,
            superseded_by=tuple(successors.get(run.run_id, ())),
            comparisons=comparisons.get(run.run_id, ()),
        )
        for run in runs
    ]
