"""Leases of requests: one dispatcher at a time holds a request, for as long as the dispatcher renews its lease."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, select, tuple_, update
from sqlalchemy.orm import Session, aliased, defer

from ringroad_lab.fleet import tables
from ringroad_lab.fleet.allotment import Wish, allot, obstacle, wishes
from ringroad_lab.fleet.bed_leases import states_in
from ringroad_lab.fleet.holder import LEASE_S, is_gone, machine_of, this_process
from ringroad_lab.fleet.inventory import BedSettings, fitting
from ringroad_lab.fleet.rows import change, lock_for_beds, locked, note
from ringroad_lab.request.model import ANY_BED, RequestState
from ringroad_lab.request.table import Request
from ringroad_lab.store import models
from ringroad_lab.store.result_store import ResultStore

AGING_S = 1800.0
"""One step of priority equals this waiting time with one bed, and an n-th of it with n beds, which serve n times as many requests."""


class Leases:
    """Claims and renews the requests of one dispatcher. Every method raises StoreFailedError if the database fails."""

    def __init__(
        self,
        store: ResultStore,
        engine: str,
        bed_classes: Collection[str] = (),
        *,
        beds: Mapping[str, BedSettings] | None = None,
        holder: str = "",
        lease_s: float = LEASE_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the engine's name and its beds; for a fleet without beds, the bed classes that it has besides `any`."""
        self.beds = beds or {}
        self.holder = holder or this_process()
        self._store = store
        self._engine = engine
        self._bed_classes = frozenset({ANY_BED, *bed_classes})
        self._lease_s = lease_s
        self._clock = clock

    @property
    def _actor(self) -> str:
        return f"dispatcher on {machine_of(self.holder)}"

    def is_any_new(self) -> bool:
        """Return whether there is a request to claim."""
        with self._store.reading() as session:
            allotted = self._allotted(session)
            if self.beds and not allotted:
                return False
            return session.scalar(self._next(allotted).with_only_columns(Request.id)) is not None

    def claim(self, may_go_on: Callable[[str], bool], expected_key: Callable[[str], str]) -> Request | None:
        """Take the next request; return None if there is none.

        A run that was begun for the request is resumed if the engine can resume it, judging by the job's last key, and if its bed is free.
        Otherwise the request gets the id of a new run, and with it the key that its job is expected to have.
        """
        with self._store.writing() as session:
            if self.beds:
                lock_for_beds(session)
            allotted = self._allotted(session)
            if self.beds and not allotted:
                return None
            row = session.scalar(self._next(allotted).with_for_update(skip_locked=True))
            if row is None:
                return None
            now = self._clock()
            beds = allotted[row.bed_class, row.scenario] if self.beds else ()
            resumes = bool(row.run_id) and may_go_on(row.job_key)
            if resumes and self.beds:
                begun_on = _bed_of(session, row.run_id)
                # A run that was begun has its own bed, unless the fleet had no beds then.
                resumes = begun_on in beds if begun_on else session.get(models.Run, row.run_id) is None
                beds = (begun_on,) if begun_on and resumes else beds
            run_id = str(row.run_id) if resumes else str(uuid.uuid4())
            values = {"attempts": row.attempts + 1, "engine": self._engine, "run_id": run_id, "job_key": expected_key(run_id)}
            values |= {"beds": tuple(beds)}
            values |= {"lease_holder": self.holder, "lease_until": now + self._lease_s, "served_at": now}
            change(session, row, RequestState.SUBMITTED, now, self._actor, f"attempt {row.attempts + 1}, run {run_id}", **values)
            return row

    def _allotted(self, session: Session) -> dict[Wish, tuple[str, ...]]:
        return allot(session, self.beds, self._clock()) if self.beds else {}

    def _next(self, allotted: Collection[Wish]) -> Select[Request]:
        """The order of requests.

        Requests of one owner and one priority form a queue, oldest first. The queue that has waited longest is served first, counted from
        when the queue was last served or its request arrived. Each step of priority counts as another half an hour of a bed. So owners take
        turns, however many requests they make. And no queue waits for ever: a queue n steps below a queue that is always
        served still gets about every n-th bed, if runs take half an hour.
        """
        table, served = Request, aliased(Request)
        same_queue = (served.owner == table.owner, served.priority == table.priority)
        last_served = select(func.max(served.served_at)).where(*same_queue).scalar_subquery()
        waits_since = case((last_served > table.created_at, last_served), else_=table.created_at)
        fits = tuple_(table.bed_class, table.scenario).in_(allotted) if self.beds else table.bed_class.in_(self._bed_classes)
        return (
            select(table)
            .where(table.state == RequestState.NEW, fits, table.not_before <= self._clock(), table.lease_holder == "")
            .order_by((table.priority * (AGING_S / max(1, len(self.beds))) - waits_since).desc(), table.created_at, table.id)
            .limit(1)
        )

    def held(self) -> list[Request]:
        """Return the requests that this dispatcher holds."""
        table = Request
        with self._store.reading() as session:
            rows = session.scalars(select(table).filter_by(lease_holder=self.holder).options(defer(table.payload)).order_by(table.id))
            return list(rows)

    def renew(self) -> None:
        """Renew the leases of the held requests."""
        table, now = Request, self._clock()
        due = (table.lease_holder == self.holder, table.lease_until < now + self._lease_s / 2)
        with self._store.reading() as session:
            if session.scalar(select(table.id).where(*due).limit(1)) is None:
                return
        with self._store.writing() as session:
            session.execute(update(table).where(*due).values(lease_until=now + self._lease_s))

    def is_mine(self, request: Request) -> bool:
        """Renew the lease of a claimed request just before its job begins; return False if the job must not begin."""
        with self._store.writing() as session:
            row = locked(session, request.id)
            if row.lease_holder != self.holder or row.state != request.state or row.attempts != request.attempts:
                return False
            row.lease_until = self._clock() + self._lease_s
            return True

    def adopt(self, may_adopt: Callable[[Request, bool], bool]) -> list[Request]:
        """Take over requests that other dispatchers of this engine left.

        Calls `may_adopt` for each request whose holder or lease ended. Its second argument: whether the holder is known to have ended.
        """
        adopted = []
        for request in self._of_others():
            gone = is_gone(request.lease_holder)
            if (gone or request.lease_until < self._clock()) and may_adopt(request, gone) and self._take_over(request):
                adopted.append(request)
        return adopted

    def _of_others(self) -> Sequence[Request]:
        table = Request
        others: tuple[ColumnElement[bool], ...] = (
            table.lease_holder != "",
            table.lease_holder != self.holder,
            table.engine == self._engine,
        )
        with self._store.reading() as session:
            return list(session.scalars(select(table).where(*others).options(defer(table.payload))))

    def _take_over(self, request: Request) -> bool:
        with self._store.writing() as session:
            row, now = locked(session, request.id), self._clock()
            if row.lease_holder != request.lease_holder or row.lease_until != request.lease_until:
                return False
            why = f"taken over from the dispatcher on {machine_of(row.lease_holder)}"
            row.lease_holder, row.lease_until = self.holder, now + self._lease_s
            note(session, row.id, now, row.state, row.state, self._actor, why)
            return True

    def move(self, request: Request, state: RequestState, why: str = "", **values: Any) -> bool:  # noqa: ANN401
        """Change the state of a held request. Return False, without a change, if it is not held or its state has changed."""
        with self._store.writing() as session:
            row = locked(session, request.id)
            if row.lease_holder != self.holder or row.state != request.state:
                return False
            change(session, row, state, self._clock(), self._actor, why, **values)
            return True

    def give_back(self, request: Request, why: str, wait_s: float, *, counts: bool, **values: Any) -> bool:  # noqa: ANN401
        """Queue a held request again after a wait; `counts` states whether this attempt counts."""
        attempts = request.attempts if counts else max(0, request.attempts - 1)
        again = {"attempts": attempts, "not_before": self._clock() + wait_s, "lease_holder": "", "lease_until": 0.0, "beds": ()}
        return self.move(request, RequestState.NEW, why, **again, **values)

    def keep(self, request: Request, **values: Any) -> None:  # noqa: ANN401
        """Change columns of a held request, except its state; do nothing if the request is not held."""
        with self._store.writing() as session:
            row = locked(session, request.id)
            if row.lease_holder == self.holder:
                for name, value in values.items():
                    setattr(row, name, value)

    def is_any_waiting(self) -> bool:
        """Return whether a request waits for an attempt, now or later, and a bed fits that is not in quarantine."""
        table = Request
        with self._store.reading() as session:
            if self.beds:
                states = states_in(session, self.beds, self._clock())
                usable = [name for name, state in states.items() if not state.quarantine]
                return any(fitting(self.beds, *wish).intersection(usable) for wish in wishes(session))
            waits = (table.state == RequestState.NEW, table.bed_class.in_(self._bed_classes))
            return session.scalar(select(table.id).where(*waits).limit(1)) is not None

    def obstacles(self) -> set[str]:
        """Return why requests wait for an operator: no bed fits, or all beds that fit are in quarantine."""
        if not self.beds:
            return set()
        with self._store.reading() as session:
            states = states_in(session, self.beds, self._clock())
            usable = {name for name, state in states.items() if not state.quarantine}
            stuck = [wish for wish in wishes(session) if usable.isdisjoint(fitting(self.beds, *wish))]
            return {f"requests for class {wish[0]}, {wish[1]} wait: {obstacle(self.beds, states, wish)}" for wish in stuck}


def _bed_of(session: Session, run_id: str | None) -> str | None:
    """Return the bed on which a run was begun."""
    table = tables.BedOccupancy
    return session.scalar(select(table.bed).filter_by(run_id=run_id).order_by(table.id.desc()).limit(1)) if run_id else None
