"""Requests in the store: made from messages, listed, and changed by users."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session, defer

from ringroad_lab.errors import StoreError
from ringroad_lab.fleet import tables
from ringroad_lab.fleet.rows import (
    announce,
    change,
    count_message,
    error_text,
    existing,
    insert,
    lock_for_adding,
    locked,
    note,
    of_delivery,
    values_of,
)
from ringroad_lab.request.message import Message
from ringroad_lab.request.model import GIVEN_UP, UNDER_WAY, RequestState, Wanted
from ringroad_lab.request.table import Request, RequestChange
from ringroad_lab.store.result_store import ResultStore

MAX_DEAD_AN_HOUR = 100
"""Maximum number of unusable messages of a source that are kept per hour; the others are only counted."""
_KEY = ("source", "build", "scenario", "bed_class")


class MessageOutcome(StrEnum):
    """The result of a message."""

    REQUESTED = "requested"
    DUPLICATE = "duplicate"
    """All requested measurements exist already."""
    NO_RULE = "no rule"
    DEAD = "dead"
    """The message is unusable; it is kept with the reason."""
    DEAD_NOT_KEPT = "dead, not kept"
    """The message is unusable, and not kept because there are too many."""


@dataclass(frozen=True)
class Added:
    """A request that a message led to."""

    id: int
    state: RequestState
    is_new: bool


@dataclass(frozen=True)
class RequestFilter:
    """Selects the requests that match all given fields."""

    state: RequestState | None = None
    source: str | None = None
    owner: str | None = None
    build: str | None = None
    """A part of the build's name."""


class Requests:
    """Reads and writes the requests of a store. Every method raises StoreFailedError if the database fails."""

    def __init__(self, store: ResultStore, clock: Callable[[], float] = time.time) -> None:
        """Take the store and a clock (seconds since 1970)."""
        self.store = store
        self._clock = clock

    def add(self, message: Message, wanted: Sequence[Wanted]) -> tuple[MessageOutcome, list[Added]]:
        """Add the measurements that a message requests in one transaction; count existing requests as duplicates."""
        with self.store.writing() as session:
            lock_for_adding(session)
            now = self._clock()
            if before := of_delivery(session, message):
                for row in before:
                    row.duplicates += 1
                added = [Added(row.id, row.state, is_new=False) for row in before]
            else:
                added = [self._add(session, message, each, now) for each in wanted]
            is_new = any(each.is_new for each in added)
            outcome = MessageOutcome.REQUESTED if is_new else MessageOutcome.DUPLICATE if added else MessageOutcome.NO_RULE
            count_message(session, message.source, outcome, now)
        return outcome, added

    def add_dead(self, message: Message, reason: str, most_an_hour: int = MAX_DEAD_AN_HOUR) -> tuple[MessageOutcome, Added | None]:
        """Keep an unusable message with the reason; if there are too many, keep nothing and return None."""
        key = {"source": message.source, "build": f"sha256:{hashlib.sha256(message.payload).hexdigest()}", "scenario": "", "bed_class": ""}
        with self.store.writing() as session:
            lock_for_adding(session)
            now = self._clock()
            row = session.scalar(select(Request).filter_by(**key).with_for_update())
            if row is not None:
                row.duplicates += 1
                outcome, added = MessageOutcome.DUPLICATE, Added(row.id, row.state, is_new=False)
            elif self._dead_since(session, message.source, now - 3600) >= most_an_hour:
                count_message(session, message.source, MessageOutcome.DEAD_NOT_KEPT, now)
                return MessageOutcome.DEAD_NOT_KEPT, None
            else:
                values = values_of(message, now) | key | {"state": RequestState.DEAD, "last_error": error_text(reason)}
                row = Request(**values, built_at=message.received_at)
                session.add(row)
                session.flush()
                note(session, row.id, now, "", RequestState.DEAD, f"source {message.source}", reason)
                announce(session, row, now, reason)
                outcome, added = MessageOutcome.DEAD, Added(row.id, RequestState.DEAD, is_new=True)
            count_message(session, message.source, outcome, now)
        return outcome, added

    def _dead_since(self, session: Session, source: str, since: float) -> int:
        table = Request
        query = select(func.count()).select_from(table).where(table.source == source, table.scenario == "", table.created_at > since)
        return session.scalar(query) or 0

    def _add(self, session: Session, message: Message, wanted: Wanted, now: float) -> Added:
        table = Request
        made = insert(session, table).values(**values_of(message, now), **dict(wanted))
        made = made.on_conflict_do_update(index_elements=list(_KEY), set_={"duplicates": table.duplicates + 1})
        request_id, duplicates, state = session.execute(made.returning(table.id, table.duplicates, table.state)).one()
        if duplicates:
            return Added(request_id, state, is_new=False)
        note(session, request_id, now, "", RequestState.NEW, f"source {message.source}")
        announce(session, locked(session, request_id), now)
        self._let_the_newest_win(session, request_id, now)
        return Added(request_id, locked(session, request_id).state, is_new=True)

    def _let_the_newest_win(self, session: Session, request_id: int, now: float) -> None:
        """Supersede older requests of the same package, tag and scenario, or the new request if a newer one exists."""
        table, new = Request, locked(session, request_id)
        if not new.package:
            return
        actor = f"source {new.source}"
        same = select(table).filter_by(package=new.package, tag=new.tag, scenario=new.scenario, bed_class=new.bed_class)
        same = same.where(table.id != new.id).order_by(table.built_at.desc(), table.id.desc())
        live = [state for state in RequestState if state not in GIVEN_UP]
        newer = session.scalar(same.where(table.built_at > new.built_at, table.state.in_(live)).limit(1))
        if newer is not None:
            change(session, new, RequestState.SUPERSEDED, now, actor, f"request {newer.id} has a newer build", superseded_by=newer.id)
            return
        replaceable = (RequestState.NEW, RequestState.SUBMITTED)
        for old in session.scalars(same.where(table.state.in_(replaceable)).with_for_update()):
            change(session, old, RequestState.SUPERSEDED, now, actor, f"request {new.id} has a newer build", superseded_by=new.id)

    # Listing

    def get(self, request_id: int) -> Request:
        """Return a request.

        Raises:
            StoreError: the request does not exist.
        """
        with self.store.reading() as session:
            return existing(session, request_id)

    def changes(self, request_id: int) -> list[RequestChange]:
        """Return the state changes of a request, in order."""
        table = RequestChange
        with self.store.reading() as session:
            return list(session.scalars(select(table).filter_by(request_id=request_id).order_by(table.id)))

    def find(self, which: RequestFilter | None = None, *, limit: int = 100, offset: int = 0) -> list[Request]:
        """Return requests, the newest first."""
        table = Request
        query = select(table).where(*_conditions(which or RequestFilter())).options(defer(table.payload))
        with self.store.reading() as session:
            return list(session.scalars(query.order_by(table.id.desc()).limit(limit).offset(offset)))

    def count(self, which: RequestFilter | None = None) -> int:
        """Return how many requests there are."""
        with self.store.reading() as session:
            query = select(func.count()).select_from(Request).where(*_conditions(which or RequestFilter()))
            return session.scalar(query) or 0

    def of_run(self, run_id: str) -> Request | None:
        """Return the request that a run was made for; None if there is none."""
        with self.store.reading() as session:
            return session.scalar(select(Request).filter_by(run_id=run_id).options(defer(Request.payload)))

    def is_delivered(self, message: Message) -> bool:
        """Return whether an earlier message of the source with the same identifier led to requests."""
        with self.store.reading() as session:
            return bool(of_delivery(session, message))

    def source_counts(self) -> list[tables.SourceCount]:
        """Return how many messages had which outcome, by source."""
        table = tables.SourceCount
        with self.store.reading() as session:
            return list(session.scalars(select(table).order_by(table.source, table.outcome)))

    # Changes by users

    def cancel(self, request_id: int, actor: str, why: str = "") -> None:
        """Cancel a request; its dispatcher stops a job that is under way.

        Raises:
            StoreError: the request does not exist, or has ended.
        """
        with self.store.writing() as session:
            row = locked(session, request_id)
            if row.state not in (RequestState.NEW, *UNDER_WAY):
                raise StoreError(f"request {request_id} is {row.state}: there is nothing to cancel")
            change(session, row, RequestState.CANCELLED, self._clock(), actor, why)

    def retry(self, request_id: int, actor: str) -> None:
        """Have a request measured by a new run after it ended; the new run supersedes that of a done request.

        Raises:
            StoreError: the request does not exist, has not ended, or is an unusable message.
        """
        with self.store.writing() as session:
            row = locked(session, request_id)
            if row.is_poison:
                raise StoreError(f"request {request_id} is an unusable message: `ringroad-lab replay` applies the rules to it again")
            if not row.may_be_retried:
                raise StoreError(f"request {request_id} is {row.state}: only requests that have ended can be retried")
            _check_no_job(row)
            if row.state is RequestState.DONE and row.run_id:
                row.order = row.order.model_copy(update={"supersedes": row.run_id})
            _renew(session, row, self._clock(), actor, "retried")

    def replay(self, request_id: int, wanted: Sequence[Wanted], actor: str) -> list[Added]:
        """Add the measurements that a request's message leads to under the current rules; update its given-up and new requests.

        Raises:
            StoreError: the request does not exist, or a job of it is still being stopped.
        """
        with self.store.writing() as session:
            lock_for_adding(session)
            now, row = self._clock(), locked(session, request_id)
            message = Message(row.source, row.payload, row.created_at, row.event, row.delivery)
            added = []
            for each in wanted:
                key = {"source": row.source, "build": each.build, "scenario": each.scenario, "bed_class": each.bed_class}
                there = session.scalar(select(Request).filter_by(**key).with_for_update())
                if there is None:
                    added.append(self._add(session, message, each, now))
                    continue
                is_new = there.state in GIVEN_UP
                if is_new or there.state == RequestState.NEW:
                    _check_no_job(there)
                    for name, value in each:
                        setattr(there, name, value)
                if is_new:
                    _renew(session, there, now, actor, f"replayed from request {request_id}")
                added.append(Added(there.id, there.state, is_new=is_new))
            if added and row.state == RequestState.DEAD and request_id not in [each.id for each in added]:
                why = f"replayed as request {added[0].id}"
                change(session, row, RequestState.SUPERSEDED, now, actor, why, superseded_by=added[0].id)
        return added


def _renew(session: Session, row: Request, now: float, actor: str, why: str) -> None:
    empty = {
        "attempts": 0,
        "last_error": "",
        "engine": "",
        "job_key": "",
        "not_before": 0.0,
        "run_id": None,
        "superseded_by": None,
        "verdict": "",
        "beds": (),
    }
    change(session, row, RequestState.NEW, now, actor, why, **empty)


def _check_no_job(row: Request) -> None:
    if row.lease_holder:
        raise StoreError(
            f"the job of request {row.id} is still being stopped by the dispatcher on {row.lease_holder.partition(':')[0]}: try again soon"
        )


def _conditions(which: RequestFilter) -> list[ColumnElement[bool]]:
    table = Request
    equal = {table.state: which.state, table.source: which.source, table.owner: which.owner}
    conditions = [column == value for column, value in equal.items() if value is not None]
    if which.build is not None:
        conditions.append(table.build.contains(which.build, autoescape=True))
    return conditions
