"""The outbox, in both databases: filled as requests change, claimed by one dispatcher at a time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

import pytest
import sqlalchemy
from alembic import command
from notified_requests import ask, have_run, make_dead

from ringroad_lab.errors import StoreError
from ringroad_lab.fleet.holder import this_process
from ringroad_lab.fleet.outbox import Outbox
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.fleet.rows import change, locked
from ringroad_lab.fleet.tables import DeliveryState, Notification
from ringroad_lab.notification.message import Notice, Stage
from ringroad_lab.request.model import RequestState
from ringroad_lab.store.database import _migration_scripts
from ringroad_lab.store.location import parse_location
from ringroad_lab.store.result_store import ResultStore

DAY_S = 86400.0


def address(outbox: Outbox, *names: str) -> list[Notice]:
    """Address all new notices to these recipients; return the notices."""
    notices: list[Notice] = []

    def recipients(notice: Notice) -> Sequence[str]:
        notices.append(notice)
        return names

    outbox.address(recipients)
    return notices


def deliver(outbox: Outbox, target: str) -> list[Notification]:
    """Deliver all due notifications to a target."""
    delivered = []
    while notification := outbox.claim(target, 60):
        outbox.delivered(notification)
        delivered.append(notification)
    return delivered


def test_each_stage_is_reported_once_in_each_round(store: ResultStore) -> None:
    outbox = Outbox(store, "here:1:1:1")
    request_id = ask(store)
    leases = have_run(store)
    (running,) = leases.held()
    # Another attempt of the same round.
    leases.give_back(running, "its run ended", 0.0, counts=True)
    leases = have_run(store)
    (running,) = leases.held()
    leases.move(running, RequestState.DEAD, "the disk is full", lease_holder="", lease_until=0.0)
    notices = address(outbox, "a", "b")
    assert [notice.stage for notice in notices] == [Stage.QUEUED, Stage.RUNNING, Stage.ERROR]
    assert (notices[-1].outcome, notices[-1].reason, notices[-1].payload) == ("dead", "the disk is full", b'{"a": 1}')
    assert [each.stage for each in deliver(outbox, "a")] == [Stage.QUEUED, Stage.RUNNING, Stage.ERROR]
    Requests(store).retry(request_id, "tester")
    assert [(notice.stage, notice.outcome, notice.reason) for notice in address(outbox, "c")] == [(Stage.QUEUED, "", "")]
    # A change that keeps the state does not start a round.
    outbox.send_again(request_id, "tester")
    outbox.send_again(request_id, "tester", to_all=True)
    assert [notice.stage for notice in address(outbox, "c")] == [Stage.QUEUED]
    assert [each.target for each in outbox.of_request(request_id)].count("c") == 1
    Requests(store).cancel(request_id, "tester", "once")
    assert [notice.reason for notice in address(outbox, "c")] == ["once"]
    Requests(store).retry(request_id, "tester")
    Requests(store).cancel(request_id, "tester", "not needed")
    assert [(notice.stage, notice.outcome, notice.reason) for notice in address(outbox, "a")] == [
        (Stage.QUEUED, "", ""),
        (Stage.ERROR, "cancelled", "not needed"),
    ]
    # The notifications of the first round were requested again.
    assert [each.stage for each in deliver(outbox, "a")] == [Stage.QUEUED, Stage.RUNNING, Stage.ERROR, Stage.QUEUED, Stage.ERROR]
    assert [each.target for each in outbox.of_request(request_id) if each.state is DeliveryState.WAITING] == ["b"] * 3 + ["c"] * 2
    deliveries = [each.delivery for each in outbox.of_request(request_id)]
    assert len(set(deliveries)) == len(deliveries) == 10


def test_a_notification_is_written_with_the_change_or_not_at_all(store: ResultStore) -> None:
    request_id = ask(store)
    outbox = Outbox(store)
    address(outbox)

    def fail() -> None:
        with store.writing() as session:
            change(session, locked(session, request_id), RequestState.DEAD, 1.0, "tester", "no reason")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert Requests(store).get(request_id).state is RequestState.NEW
    assert not outbox.is_any_new()
    with store.writing() as session:
        change(session, locked(session, request_id), RequestState.DEAD, 1.0, "tester", "no reason")
    assert outbox.is_any_new()


def test_notifications_are_sent_by_one_dispatcher_and_in_order(store: ResultStore) -> None:
    here, there = Outbox(store, "here:1:1:1"), Outbox(store, "there:1:1:1")
    ask(store)
    have_run(store)
    address(here, "a")
    first = here.claim("a", 60)
    assert first
    assert first.stage is Stage.QUEUED
    # The next notification waits for it in every dispatcher.
    assert there.claim("a", 60) is None
    assert there.due(["a"]) == []
    here.failed(first, "busy", 0.0, 7)
    again = there.claim("a", 60)
    assert again
    assert (again.id, again.attempts, again.delivery) == (first.id, 2, first.delivery)
    # `here` no longer holds it.
    here.delivered(first)
    assert here.claim("a", 60) is None
    there.delivered(again)
    following = here.claim("a", 60)
    assert following
    assert following.stage is Stage.RUNNING


def test_concurrent_dispatchers_send_each_notification_once(store: ResultStore, location: str) -> None:
    count, workers = 40, 4
    for number in range(count):
        make_dead(store, number)
    sent: Counter[str] = Counter()
    problems: list[BaseException] = []
    start = threading.Barrier(workers)

    def work(number: int) -> None:
        try:
            with ResultStore(location) as own:
                outbox = Outbox(own, f"machine-{number}:1:1:1")
                start.wait(60)
                while outbox.is_any_new():
                    address(outbox, "a", "b")
                for target in ("a", "b"):
                    for notification in deliver(outbox, target):
                        sent[notification.delivery] += 1
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    outbox = Outbox(store)
    rows = [each for request in Requests(store).find() for each in outbox.of_request(request.id)]
    assert len(rows) == 2 * count
    assert {(each.state, each.attempts) for each in rows} == {(DeliveryState.DELIVERED, 1)}
    assert set(sent.values()) == {1}
    assert set(sent) == {each.delivery for each in rows}


def test_claims_of_ended_processes_are_released(store: ResultStore) -> None:
    make_dead(store)
    gone = Outbox(store, f"{this_process().rpartition(':')[0]}:1.00")
    address(gone, "a")
    taken = gone.claim("a", 3600)
    assert taken
    here = Outbox(store, this_process())
    assert here.claim("a", 60) is None
    here.free()
    again = here.claim("a", 60)
    assert again
    assert again.delivery == taken.delivery


def test_a_claim_of_another_machine_expires(store: ResultStore) -> None:
    now = [1e9]
    make_dead(store)
    there, here = Outbox(store, "there:1:1:1", clock=lambda: now[0]), Outbox(store, this_process(), clock=lambda: now[0])
    address(there, "a")
    assert there.claim("a", 90)
    here.free()
    now[0] += 80
    assert here.due(["a"]) == []
    now[0] += 20
    assert here.due(["a"]) == ["a"]
    assert here.claim("a", 90)


def test_a_notification_that_fails_for_days_is_given_up_and_sent_again_on_request(store: ResultStore) -> None:
    now = [1e9]
    outbox = Outbox(store, "here:1:1:1", clock=lambda: now[0])
    request_id = make_dead(store)
    address(outbox, "a")

    def fail() -> Notification:
        taken = outbox.claim("a", 60)
        assert taken
        outbox.failed(taken, "status 503", 3600.0, for_days=2)
        (row,) = outbox.of_request(request_id)
        return row

    first = fail()
    assert (first.state, first.not_before, first.last_error) == (DeliveryState.WAITING, 1e9 + 3600, "status 503")
    assert outbox.due(["a"]) == []
    now[0] += 2.1 * DAY_S
    given_up = fail()
    assert (given_up.state, given_up.last_error) == (DeliveryState.UNDELIVERED, "given up after 2 days: status 503")
    assert [(each.target, each.state, each.count) for each in outbox.counts()] == [("a", DeliveryState.UNDELIVERED, 1)]
    assert outbox.due(["a"]) == []
    assert outbox.send_again(request_id, "tester") == 1
    (again,) = deliver(outbox, "a")
    # A recipient that got it nevertheless recognizes it by its delivery id.
    assert (again.delivery, again.attempts) == (first.delivery, 1)
    assert outbox.send_again(request_id, "tester") == 0
    assert Requests(store).changes(request_id)[-1].why == "notified again"


def test_all_recipients_including_new_ones_are_notified_again_on_request(store: ResultStore) -> None:
    outbox = Outbox(store, "here:1:1:1")
    request_id = make_dead(store)
    address(outbox, "a")
    (first,) = deliver(outbox, "a")
    assert outbox.send_again(request_id, "tester", to_all=True) == 1
    (notice,) = address(outbox, "a", "b")
    assert (notice.outcome, notice.reason) == ("dead", "invalid JSON")
    (second,) = deliver(outbox, "a")
    assert second.delivery != first.delivery
    assert len(deliver(outbox, "b")) == 1
    with pytest.raises(StoreError, match="no request 77"):
        outbox.send_again(77, "tester")


def test_a_removed_target_is_given_up(store: ResultStore) -> None:
    now = [1e9]
    outbox = Outbox(store, "here:1:1:1", clock=lambda: now[0])
    request_id = make_dead(store)
    address(outbox, "kept", "removed")
    now[0] += 8 * DAY_S
    outbox.give_up_unknown(["kept"])
    assert {each.target: each.state for each in outbox.of_request(request_id)} == {
        "kept": DeliveryState.WAITING,
        "removed": DeliveryState.UNDELIVERED,
    }


def test_undelivered_notifications_are_sent_after_the_upgrade(location: str) -> None:
    engine = sqlalchemy.create_engine(parse_location(location))
    with engine.begin() as connection:
        command.upgrade(_migration_scripts(connection), "0005")
        table = sqlalchemy.Table("request", sqlalchemy.MetaData(), autoload_with=connection)
        texts = dict.fromkeys(("bed_class", "package", "tag", "owner", "last_error", "event", "delivery", "engine", "job_key"), "")
        numbers = dict.fromkeys(("built_at", "priority", "attempts", "duplicates", "lease_until", "not_before", "served_at"), 0)
        same = {
            "source": "forge",
            "scenario": "S",
            "order": "{}",
            "payload": b"{}",
            "created_at": 1.0,
            "changed_at": 2.0,
            **texts,
            **numbers,
        }
        for build, state, told_at, holder in (
            ("notified", "done", 3.0, ""),
            ("undelivered", "done", 0.0, "gone:1:1:1"),
            ("new", "new", 0.0, ""),
        ):
            values = {"build": build, "state": state, "told_at": told_at, "lease_holder": holder, "verdict": "measured", "run_id": build}
            connection.execute(table.insert().values(**same, **values))
    engine.dispose()
    with ResultStore(location) as store:
        (notice,) = address(Outbox(store), "a")
        assert notice.request
        assert (notice.request.build, notice.stage, notice.outcome, notice.happened_at) == ("undelivered", Stage.COMPLETE, "measured", 2.0)
        assert {each.lease_holder for each in Requests(store).find()} == {""}
