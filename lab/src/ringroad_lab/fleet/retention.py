"""Deletes requests that ended long ago, with all their data except their runs."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, select, update

from ringroad_lab.fleet import tables
from ringroad_lab.fleet.tables import DeliveryState
from ringroad_lab.request.model import GIVEN_UP, RequestState
from ringroad_lab.request.table import Request, RequestChange
from ringroad_lab.store.result_store import ResultStore

# Rows per transaction, so that others do not wait long for the store.
_BATCH = 500


@dataclass
class Forgotten:
    """Numbers of deleted rows."""

    requests: int = 0
    occupancies: int = 0
    """Occupancies of beds."""


def forget(store: ResultStore, before: float) -> Forgotten:
    """Delete requests that ended, and ended bed occupancies that began, before a time (seconds since 1970).

    A request stays while one of its notifications waits, or a dispatcher holds it. The same message later makes another request.

    Raises:
        StoreFailedError: the database failed; rows deleted by then stay deleted.
    """
    gone = Forgotten()
    while (removed := _forget_requests(store, before)) > 0:
        gone.requests += removed
    occupancy = tables.BedOccupancy
    with store.writing() as session:
        over = delete(occupancy).where(occupancy.taken_at < before, occupancy.ended_at.is_not(None))
        gone.occupancies = len(session.scalars(over.returning(occupancy.id)).all())
    return gone


def _forget_requests(store: ResultStore, before: float) -> int:
    table, undelivered, occupancy = Request, tables.Notification, tables.BedOccupancy
    over = (RequestState.DONE, *GIVEN_UP)
    waits = select(undelivered.id).where(undelivered.request_id == table.id, undelivered.state == DeliveryState.WAITING).exists()
    ended = select(table.id).where(table.state.in_(over), table.changed_at < before, table.lease_holder == "", ~waits)
    with store.writing() as session:
        ids = list(session.scalars(ended.order_by(table.id).limit(_BATCH).with_for_update(skip_locked=True)))
        if not ids:
            return 0
        session.execute(update(table).where(table.superseded_by.in_(ids)).values(superseded_by=None))
        session.execute(update(occupancy).where(occupancy.request_id.in_(ids)).values(request_id=None))
        for dependent in (RequestChange, undelivered):
            session.execute(delete(dependent).where(dependent.request_id.in_(ids)))
        session.execute(delete(table).where(table.id.in_(ids)))
    return len(ids)
