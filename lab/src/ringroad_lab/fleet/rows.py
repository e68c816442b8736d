"""Requests as rows: reads them, and changes their states by allowed transitions only."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Insert, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from ringroad_lab.errors import StoreError
from ringroad_lab.fleet import tables
from ringroad_lab.notification.message import Stage
from ringroad_lab.request.message import Message
from ringroad_lab.request.model import TRANSITIONS, UNDER_WAY, RequestState
from ringroad_lab.request.table import Request, RequestChange
from ringroad_lab.store import models
from ringroad_lab.store.rows import indexed

UNADDRESSED = ""
"""The target of events that are not addressed yet."""
_MAX_ERROR_CHARACTERS = 4000
_STAGES = {
    RequestState.NEW: Stage.QUEUED,
    RequestState.SUBMITTED: Stage.QUEUED,
    RequestState.RUNNING: Stage.RUNNING,
    RequestState.DONE: Stage.COMPLETE,
}
# Advisory locks of PostgreSQL: any numbers except the migrations' lock, the same in every process.
_ADDING_LOCK = 2545
_BEDS_LOCK = 2546


def lock_for_adding(session: Session) -> None:
    """Let one transaction at a time add requests: two builds that arrive at once must see each other."""
    _take_turns(session, _ADDING_LOCK)


def lock_for_beds(session: Session) -> None:
    """Let one transaction at a time assign beds: two that search for a free bed at once must see each other."""
    _take_turns(session, _BEDS_LOCK)


def _take_turns(session: Session, number: int) -> None:
    # SQLite has one writer anyway.
    if session.get_bind().dialect.name == "postgresql":
        session.connection().exec_driver_sql(f"SELECT pg_advisory_xact_lock({number})")


def insert(session: Session, table: type[models.Base]) -> Any:  # noqa: ANN401
    """Return an INSERT that supports ON CONFLICT; each database has its own construct."""
    made: Insert = (postgresql if session.get_bind().dialect.name == "postgresql" else sqlite).insert(table)
    return made


def values_of(message: Message, now: float) -> dict[str, Any]:
    """Return the values of a new request that come from its message."""
    return {
        "source": message.source,
        "event": indexed(message.event),
        "delivery": indexed(message.delivery),
        "payload": message.payload,
        "created_at": now,
        "changed_at": now,
    }


def existing(session: Session, request_id: int, *, is_locked: bool = False) -> Request:
    """Return the row of a request; others cannot change a locked row until this transaction ends.

    Raises:
        StoreError: the request does not exist.
    """
    row = session.get(Request, request_id, with_for_update=is_locked or None) if 0 < request_id < 2**31 else None
    if row is None:
        raise StoreError(f"no request {request_id} in the result store: `ringroad-lab requests` lists them")
    return row


def locked(session: Session, request_id: int) -> Request:
    """Return the locked row of a request, or raise StoreError."""
    return existing(session, request_id, is_locked=True)


def change(session: Session, row: Request, state: RequestState, now: float, actor: str, why: str = "", **values: Any) -> None:  # noqa: ANN401
    """Change the state and other columns of a locked row, and record the change.

    Raises:
        StoreError: the transition is not allowed.
    """
    old = row.state
    if state not in TRANSITIONS[old] and not (state is RequestState.NEW and row.may_be_retried):
        raise StoreError(f"request {row.id} is {old}, and cannot become {state}")
    row.state = state
    row.changed_at = now
    for name, value in values.items():
        setattr(row, name, value)
    note(session, row.id, now, old.value, state.value, actor, why)
    # Recipients are not notified of further attempts.
    if state is not RequestState.SUBMITTED and (state is not RequestState.NEW or old not in UNDER_WAY):
        announce(session, row, now, why)


def announce(session: Session, row: Request, now: float, why: str = "") -> None:
    """Notify recipients of a request's state, once in each round; in the transaction that changes the state."""
    stage = _STAGES.get(row.state, Stage.ERROR)
    changes = RequestChange
    no_end = ("", RequestState.NEW.value, *(each.value for each in UNDER_WAY))
    begun_anew = (changes.request_id == row.id, changes.new == RequestState.NEW.value, changes.old.not_in(no_end))
    values = {
        "request_id": row.id,
        "round": session.scalar(select(func.count()).where(*begun_anew)),
        "stage": stage,
        "target": UNADDRESSED,
        "run_id": row.run_id,
        "outcome": {Stage.COMPLETE: row.verdict, Stage.ERROR: row.state.value}.get(stage, ""),
        "reason": error_text(why or row.last_error) if stage is Stage.ERROR else "",
        "happened_at": now,
        "asked_at": now,
        "changed_at": now,
    }
    made = insert(session, tables.Notification).values(**values)
    session.execute(made.on_conflict_do_nothing(index_elements=["request_id", "round", "stage", "target"]))


def note(session: Session, request_id: int, now: float, old: str, new: str, actor: str, why: str = "") -> None:
    """Record a change of a request."""
    session.add(
        RequestChange(request_id=request_id, changed_at=now, old=old, new=new, actor=indexed(actor), why=error_text(why)),
    )


def error_text(text: str) -> str:
    """Return a reason in the form of rows: its end, which is the most informative part."""
    return text.replace("\0", "\ufffd")[-_MAX_ERROR_CHARACTERS:]


def count_message(session: Session, source: str, outcome: str, now: float) -> None:
    """Count a message of a source."""
    table = tables.SourceCount
    made = insert(session, table).values(source=source, outcome=outcome, messages=1, last_at=now)
    session.execute(
        made.on_conflict_do_update(index_elements=["source", "outcome"], set_={"messages": table.messages + 1, "last_at": now}),
        execution_options={"synchronize_session": False},
    )


def of_delivery(session: Session, message: Message) -> list[Request]:
    """Return the rows of an earlier message of the source with the same identifier."""
    if not message.delivery:
        return []
    table = Request
    query = select(table).filter_by(source=message.source, delivery=indexed(message.delivery)).order_by(table.id).with_for_update()
    return list(session.scalars(query))
