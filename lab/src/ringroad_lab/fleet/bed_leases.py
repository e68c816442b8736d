"""Leases of beds: one run at a time holds a bed, for as long as the run renews its lease.

The token of a bed grows each time the bed is taken. A run with an old token or an expired lease has lost the bed and can write nothing,
even if no other run took the bed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ringroad_lab.errors import BedError, BedLostError, StoreError
from ringroad_lab.fleet import tables
from ringroad_lab.fleet.holder import LEASE_S, is_gone, machine_of, this_process
from ringroad_lab.fleet.rows import error_text, insert, lock_for_beds
from ringroad_lab.report.quantity import moment
from ringroad_lab.request.table import Request, RequestChange
from ringroad_lab.store.result_store import ResultStore

LOST = "lost: the run was killed, or could not renew its lease"
"""The outcome of an occupancy whose run did not give the bed back."""


@dataclass(frozen=True)
class BedLease:
    """A run's lease on a bed."""

    bed: str
    run_id: str
    token: int
    until: float
    """Seconds since 1970, as of the last renewal."""
    lost_run_id: str = ""
    """The previous run on the bed, if that run did not give the bed back."""


@dataclass(frozen=True)
class Occupancy:
    """One use of a bed by a run."""

    bed: str
    run_id: str
    request_id: int | None
    machine: str
    taken_at: float
    waited_s: float | None
    """Time that the request of the run had waited; None without a request."""
    ended_at: float | None
    outcome: str


@dataclass(frozen=True)
class BedState:
    """The state of a bed."""

    name: str
    token: int = 0
    occupancy: Occupancy | None = None
    """Occupancy of the run that holds the bed; None if the bed is not taken."""
    lease_until: float = 0.0
    quarantine: str = ""
    """Reason of the quarantine; empty if there is none."""
    quarantined_at: float = 0.0
    quarantined_by: str = ""

    @property
    def is_free(self) -> bool:
        """Whether a run can take the bed."""
        return self.occupancy is None and not self.quarantine


class BedLeases:
    """Takes, renews and gives back beds for the runs of one process. Every method raises StoreError if the database fails."""

    def __init__(self, store: ResultStore, *, holder: str = "", lease_s: float = LEASE_S, clock: Callable[[], float] = time.time) -> None:
        """Take the store and a clock (seconds since 1970)."""
        self.holder = holder or this_process()
        self.lease_s = lease_s
        self.clock = clock
        self._store = store

    # Runs

    def take(self, name: str, run_id: str) -> BedLease:
        """Take a bed for a run.

        Raises:
            BedError: another run holds the bed, the bed is in quarantine, or this run holds another bed.
        """
        with self._store.writing() as session:
            lock_for_beds(session)
            now, row = self.clock(), _row(session, name)
            if row.quarantine:
                raise BedError(
                    f"bed {name} is in quarantine since {moment(row.quarantined_at)} ({row.quarantined_by}): {row.quarantine}; "
                    f"`ringroad-lab beds release {name}` returns it to service"
                )
            before = _current(session, row)
            if is_held(row, now):
                which = f"run {before.run_id[:8]} " if before else ""
                raise BedError(f"bed {name} is taken: {which}on {machine_of(row.holder)}; wait until it ends, or choose another bed")
            for other in session.scalars(select(tables.StoredBed).where(tables.StoredBed.holder != "", tables.StoredBed.name != name)):
                its = _current(session, other)
                if its and its.run_id == run_id and is_held(other, now):
                    raise BedError(f"run {run_id[:8]} still holds bed {other.name} on {machine_of(other.holder)}: a run uses only one bed")
            lost = before.run_id if before and before.ended_at is None else ""
            if before and lost:
                before.ended_at, before.outcome = min(now, row.lease_until), LOST
            row.token += 1
            row.holder, row.lease_until = self.holder, now + self.lease_s
            request = session.scalar(select(Request).where(Request.run_id == run_id))
            waited_s = _waited_s(session, request, now) if request else None
            key = {"bed": name, "token": row.token, "run_id": run_id, "request_id": request.id if request else None}
            session.add(tables.BedOccupancy(**key, holder=self.holder, taken_at=now, waited_s=waited_s))
            return BedLease(name, run_id, row.token, row.lease_until, lost)

    def renew(self, lease: BedLease) -> float:
        """Renew the lease of a bed; return its new end.

        Raises:
            BedLostError: the lease had ended, even if no other run took the bed.
        """
        with self._store.writing() as session:
            row = self._its_row(session, lease)
            row.lease_until = self.clock() + self.lease_s
            return row.lease_until

    def check(self, lease: BedLease) -> None:
        """Check that a run still holds its bed.

        Raises:
            BedLostError: the run has lost the bed.
        """
        with self._store.reading() as session:
            self._its_row(session, lease, is_locked=False)

    def check_in(self, session: Session, lease: BedLease) -> None:
        """Check in a transaction that a run still holds its bed; no other run can take the bed before the transaction ends.

        Raises:
            BedLostError: the run has lost the bed.
        """
        self._its_row(session, lease)

    def give_back(self, lease: BedLease, outcome: str, quarantine: str = "") -> None:
        """End a lease; if `quarantine` gives a reason, put the bed into quarantine.

        Raises:
            BedLostError: the lease had ended.
        """
        with self._store.writing() as session:
            row, now = self._its_row(session, lease), self.clock()
            row.holder, row.lease_until = "", 0.0
            occupancy = _current(session, row)
            assert occupancy is not None
            occupancy.ended_at, occupancy.outcome = now, error_text(outcome)
            if quarantine and not row.quarantine:
                _put_into_quarantine(row, quarantine, f"run {lease.run_id[:8]}", now)

    def _its_row(self, session: Session, lease: BedLease, *, is_locked: bool = True) -> tables.StoredBed:
        row = session.get(tables.StoredBed, lease.bed, with_for_update=is_locked or None)
        if row is None or row.token != lease.token or row.holder != self.holder:
            raise BedLostError(
                f"bed {lease.bed} is no longer held by run {lease.run_id[:8]}: the lease ended, and another run took the bed"
            )
        if row.lease_until <= self.clock():
            ended = moment(row.lease_until)
            raise BedLostError(f"the lease of run {lease.run_id[:8]} on bed {lease.bed} ended at {ended}: the run or its store stalled")
        return row

    # Operators

    def quarantine(self, name: str, reason: str, by: str) -> None:
        """Put a bed into quarantine; a run that holds the bed continues.

        Raises:
            StoreError: the bed is in quarantine already.
        """
        with self._store.writing() as session:
            row = _row(session, name)
            if row.quarantine:
                raise StoreError(f"bed {name} is in quarantine since {moment(row.quarantined_at)}: {row.quarantine}")
            _put_into_quarantine(row, reason, by, self.clock())

    def release(self, name: str, *, forget_calibrations: bool = False) -> None:
        """Take a bed out of quarantine; forget its earlier calibrations if the bed was changed.

        Raises:
            StoreError: the bed is not in quarantine.
        """
        with self._store.writing() as session:
            row = session.get(tables.StoredBed, name, with_for_update=True)
            if row is None or not row.quarantine:
                raise StoreError(f"bed {name} is not in quarantine: `ringroad-lab beds` lists all")
            row.quarantine, row.quarantined_at, row.quarantined_by = "", 0.0, ""
            if forget_calibrations:
                for each in session.scalars(select(tables.BedCalibration).filter_by(bed=name, is_good=True)):
                    each.is_good = False

    def states(self, names: Collection[str]) -> dict[str, BedState]:
        """Return the states of beds."""
        with self._store.reading() as session:
            return states_in(session, names, self.clock())


def states_in(session: Session, names: Collection[str], now: float) -> dict[str, BedState]:
    """Return the states of beds, as seen by a transaction."""
    found = {name: BedState(name) for name in names}
    table, taking = tables.StoredBed, tables.BedOccupancy
    joined = select(table, taking).outerjoin(taking, (taking.bed == table.name) & (taking.token == table.token))
    for row, last in session.execute(joined.where(table.name.in_(names))):
        has_it = last is not None and is_held(row, now)
        found[row.name] = BedState(
            row.name,
            row.token,
            read_occupancy(last) if has_it else None,
            row.lease_until if has_it else 0.0,
            row.quarantine,
            row.quarantined_at,
            row.quarantined_by,
        )
    return found


def is_held(row: tables.StoredBed, now: float) -> bool:
    """Return whether a live run holds a bed: its lease has not ended, and its process is not known to have ended."""
    return bool(row.holder) and row.lease_until > now and not is_gone(row.holder)


def read_occupancy(row: tables.BedOccupancy) -> Occupancy:
    """Return the occupancy of a row."""
    return Occupancy(row.bed, row.run_id, row.request_id, machine_of(row.holder), row.taken_at, row.waited_s, row.ended_at, row.outcome)


def _row(session: Session, name: str) -> tables.StoredBed:
    """Return the locked row of a bed; create the row if it is missing."""
    session.execute(insert(session, tables.StoredBed).values(name=name).on_conflict_do_nothing())
    return session.get_one(tables.StoredBed, name, with_for_update=True)


def _current(session: Session, row: tables.StoredBed) -> tables.BedOccupancy | None:
    return session.scalar(select(tables.BedOccupancy).filter_by(bed=row.name, token=row.token))


def _put_into_quarantine(row: tables.StoredBed, reason: str, by: str, now: float) -> None:
    row.quarantine, row.quarantined_at, row.quarantined_by = error_text(reason), now, by


def _waited_s(session: Session, request: Request, now: float) -> float:
    """Return the time that a request waited, s: since it was last queued, or since its `not_before` if that is later."""
    change = RequestChange
    put = select(func.max(change.changed_at)).where(change.request_id == request.id, change.new == "new", change.old != "new")
    return max(0.0, now - max(session.scalar(put) or request.created_at, request.not_before))
