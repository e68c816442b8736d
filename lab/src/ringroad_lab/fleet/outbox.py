"""The outbox: notifications of requests, by recipient, and their delivery states. Changes of requests fill it (rows.announce)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, delete, func, or_, select, update
from sqlalchemy.orm import aliased

from ringroad_lab.comparison import compare_runs
from ringroad_lab.errors import StoreError, StoreFailedError
from ringroad_lab.fleet.holder import is_gone
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.fleet.rows import UNADDRESSED, announce, error_text, insert, locked, note
from ringroad_lab.fleet.tables import DeliveryState, Notification
from ringroad_lab.notification.message import Notice, Stage

if TYPE_CHECKING:
    from ringroad_lab.comparison import RunComparison
    from ringroad_lab.store.result_store import ResultStore

_DAY_S = 86400.0
_MOST_WAIT_S = 3600.0
_MOST_ASKED_WAIT_S = _DAY_S
_UNKNOWN_FOR_S = 7 * _DAY_S
"""A target that is in no dispatcher's settings is given up after this time."""
_UNADDRESSED_FOR_S = 3600.0
_AT_ONCE = 100


@dataclass(frozen=True)
class TargetCounts:
    """The number of a target's notifications in one state."""

    target: str
    state: DeliveryState
    count: int
    oldest_at: float


class Outbox:
    """Reads and writes the outbox of a store. Every method raises StoreFailedError if the database fails."""

    def __init__(self, store: ResultStore, holder: str = "", *, clock: Callable[[], float] = time.time) -> None:
        """Take the store and the holder name for claims of this process; only claiming needs a name."""
        self._store = store
        self._holder = holder
        self._clock = clock

    # Addressing

    def address(self, recipients_of: Callable[[Notice], Collection[str]]) -> None:
        """Make a row for each recipient of each new event, a batch at a time."""
        table = Notification
        with self._store.reading() as session:
            rows = session.scalars(select(table).where(*_waits(UNADDRESSED)).order_by(table.id).limit(_AT_ONCE))
            events = list(rows)
        for event in events:
            names = recipients_of(self.notice(event))
            with self._store.writing() as session:
                row = session.get(table, event.id, with_for_update=True)
                # Another dispatcher may have been faster.
                if row is None:
                    continue
                now = self._clock()
                key = {"request_id": row.request_id, "round": row.round, "stage": row.stage}
                content = {"run_id": row.run_id, "outcome": row.outcome, "reason": row.reason, "happened_at": row.happened_at}
                for name in names:
                    values = {**_fresh(now), **key, **content, "target": name, "delivery": str(uuid.uuid4())}
                    session.execute(insert(session, table).values(**values).on_conflict_do_nothing(index_elements=[*key, "target"]))
                session.delete(row)

    def forget(self) -> None:
        """Delete events that no dispatcher has addressed for an hour: no dispatcher has recipients."""
        table = Notification
        old = (*_waits(UNADDRESSED), table.asked_at < self._clock() - _UNADDRESSED_FOR_S)
        with self._store.reading() as session:
            if session.scalar(select(table.id).where(*old).limit(1)) is None:
                return
        with self._store.writing() as session:
            session.execute(delete(table).where(*old))

    def notice(self, notification: Notification) -> Notice:
        """Return the content of a notification."""
        store, requests = self._store, Requests(self._store)
        request = requests.get(notification.request_id)
        # All tries must have the same content. Whether the run is in the store depends on the time until the end.
        try:
            record = store.get_run(notification.run_id) if notification.run_id and notification.stage.is_end else None
        except StoreFailedError:
            raise
        except StoreError:
            # The job ended before its run began.
            record = None
        compared = record and notification.stage is Stage.COMPLETE and request.order.baseline
        comparison = next(iter(store.comparisons(record.run_id)), None) if record and compared else None
        return Notice(
            record,
            comparison,
            notification.stage,
            request,
            notification.outcome,
            notification.reason,
            request.payload,
            happened_at=notification.happened_at,
            load_comparison=partial(_compare, store, comparison.baseline_run_id if comparison else "", notification.run_id or ""),
        )

    # Delivering

    def due(self, targets: Collection[str]) -> list[str]:
        """Return the targets that have a due notification."""
        table = Notification
        with self._store.reading() as session:
            found = session.scalars(select(table.target).where(*self._is_due(), table.target.in_(targets)).distinct())
            return sorted(found)

    def is_any_new(self) -> bool:
        """Return whether there are events that are not addressed yet."""
        with self._store.reading() as session:
            return session.scalar(select(Notification.id).where(*_waits(UNADDRESSED)).limit(1)) is not None

    def claim(self, target: str, for_s: float) -> Notification | None:
        """Claim the next notification of a target; return None if none is due.

        No other process claims the notification for `for_s` seconds. Each target gets the notifications of a request in order.
        """
        table = Notification
        query = select(table).where(*self._is_due(), table.target == target).order_by(table.not_before, table.id).limit(1)
        with self._store.writing() as session:
            row = session.scalar(query.with_for_update(skip_locked=True))
            if row is None:
                return None
            row.holder, row.held_until, row.attempts = self._holder, self._clock() + for_s, row.attempts + 1
            return row

    def _is_due(self) -> tuple[ColumnElement[bool], ...]:
        table, before = Notification, aliased(Notification)
        now = self._clock()
        earlier = select(before.id).where(
            before.request_id == table.request_id,
            before.target == table.target,
            before.state == DeliveryState.WAITING,
            before.id < table.id,
        )
        # A notification that this process already holds is free, too: it claimed it, but did not begin to send it.
        is_free = or_(table.holder.in_(("", self._holder)), table.held_until < now)
        return (table.state == DeliveryState.WAITING, table.not_before <= now, is_free, ~earlier.exists())

    def free(self) -> None:
        """Release the claims of ended processes of this machine: whether their notifications arrived is unknown."""
        table = Notification
        with self._store.reading() as session:
            holders = session.scalars(select(table.holder).where(table.state == DeliveryState.WAITING, table.holder != "").distinct())
            gone = [holder for holder in holders if holder != self._holder and is_gone(holder)]
        if gone:
            with self._store.writing() as session:
                session.execute(update(table).where(table.holder.in_(gone)).values(holder="", held_until=0.0))

    def delivered(self, notification: Notification) -> None:
        """Record that a notification was delivered."""
        self._end(notification, state=DeliveryState.DELIVERED, last_error="")

    def refused(self, notification: Notification, why: str) -> None:
        """Record that a notification will not be delivered."""
        self._end(notification, state=DeliveryState.UNDELIVERED, last_error=error_text(why))

    def failed(self, notification: Notification, why: str, wait_s: float, for_days: float) -> None:
        """Retry a notification later; give up after `for_days` days."""
        now = self._clock()
        if now - notification.asked_at > for_days * _DAY_S:
            self.refused(notification, f"given up after {for_days:g} days: {why}")
        else:
            self._end(notification, last_error=error_text(why), not_before=now + min(wait_s, _MOST_ASKED_WAIT_S))

    def _end(self, notification: Notification, **values: Any) -> None:  # noqa: ANN401
        with self._store.writing() as session:
            row = session.get(Notification, notification.id, with_for_update=True)
            # Another dispatcher took the notification after this claim expired, and records the result.
            if row is not None and row.holder == self._holder and row.attempts == notification.attempts:
                for name, value in {**values, "holder": "", "held_until": 0.0, "changed_at": self._clock()}.items():
                    setattr(row, name, value)

    def give_up_unknown(self, known: Collection[str]) -> None:
        """Give up notifications of targets that have been in no dispatcher's settings for long."""
        table, now = Notification, self._clock()
        why = "given up: no dispatcher has this target in its settings"
        which = (
            table.state == DeliveryState.WAITING,
            table.target.not_in([UNADDRESSED, *known]),
            table.asked_at < now - _UNKNOWN_FOR_S,
        )
        values = {"state": DeliveryState.UNDELIVERED, "last_error": why, "changed_at": now}
        with self._store.writing() as session:
            session.execute(update(table).where(*which, table.not_before < now - _UNKNOWN_FOR_S).values(**values))

    # Reading and requeuing

    def of_request(self, request_id: int) -> list[Notification]:
        """Return the notifications of a request, sent or not, in order."""
        table = Notification
        with self._store.reading() as session:
            rows = session.scalars(select(table).where(table.request_id == request_id, table.target != UNADDRESSED).order_by(table.id))
            return list(rows)

    def counts(self) -> list[TargetCounts]:
        """Return how many notifications wait or were not delivered, by target."""
        table = Notification
        columns = (table.target, table.state, func.count(), func.min(table.happened_at))
        query = select(*columns).where(table.state != DeliveryState.DELIVERED, table.target != UNADDRESSED)
        with self._store.reading() as session:
            rows = session.execute(query.group_by(table.target, table.state).order_by(table.target, table.state))
            return [TargetCounts(target, state, count, oldest) for target, state, count, oldest in rows]

    def send_again(self, request_id: int, actor: str, *, to_all: bool = False) -> int:
        """Send a request's undelivered notifications again at once; return how many.

        With `to_all`, also send the delivered ones again, as new ones, and notify all current targets of the request's state.

        Raises:
            StoreError: the request does not exist.
        """
        table = Notification
        with self._store.writing() as session:
            row, now = locked(session, request_id), self._clock()
            rows = session.scalars(select(table).where(table.request_id == request_id, table.target != UNADDRESSED).with_for_update()).all()
            again = [each for each in rows if to_all or each.state != DeliveryState.DELIVERED]
            for each in again:
                if each.state == DeliveryState.DELIVERED:
                    # The recipient would discard the notification with its old id as a duplicate.
                    each.delivery = str(uuid.uuid4())
                if each.state != DeliveryState.WAITING or each.holder == "":
                    for name, value in _fresh(now).items():
                        setattr(each, name, value)
            if to_all:
                announce(session, row, now)
            if again or to_all:
                note(session, request_id, now, row.state, row.state, actor, "notified again")
            return len(again)


def wait_s(attempts: int, first_s: float, asked_s: float = 0.0) -> float:
    """Return how long to wait after this many attempts: twice as long each time, up to an hour; longer if the recipient requests that."""
    return max(asked_s, min(_MOST_WAIT_S, first_s * 2.0 ** min(attempts - 1, 30)))


def _waits(target: str) -> Sequence[ColumnElement[bool]]:
    return (Notification.state == DeliveryState.WAITING, Notification.target == target)


def _fresh(now: float) -> dict[str, Any]:
    return {
        "state": DeliveryState.WAITING,
        "attempts": 0,
        "last_error": "",
        "asked_at": now,
        "not_before": 0.0,
        "changed_at": now,
        "holder": "",
        "held_until": 0.0,
    }


def _compare(store: ResultStore, baseline_run_id: str, run_id: str) -> RunComparison | None:
    return compare_runs(store.get_run(baseline_run_id), store.get_run(run_id)) if baseline_run_id else None
