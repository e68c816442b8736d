"""Requests in the store, on SQLite and PostgreSQL: created once, changed by allowed transitions, claimed by one dispatcher at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hand_clock import EPOCH, HandClock
from ringroad_lab.errors import StoreError
from ringroad_lab.fleet.holder import is_gone, this_process
from ringroad_lab.fleet.leases import AGING_S, Leases
from ringroad_lab.fleet.outbox import Outbox
from ringroad_lab.fleet.requests import MessageOutcome, RequestFilter, Requests
from ringroad_lab.fleet.retention import Forgotten, forget
from ringroad_lab.request.message import Message
from ringroad_lab.request.model import TRANSITIONS, Order, RequestState, Wanted
from ringroad_lab.store.result_store import ResultStore

GONE = this_process().rpartition(":")[0] + ":1.00"


@pytest.fixture
def requests(store: ResultStore, clock: HandClock) -> Requests:
    return Requests(store, clock)


def wanted(build: str = "ovs-3.5", **values: Any) -> Wanted:  # noqa: ANN401
    return Wanted(**{"build": build, "scenario": "BRIDGE_VETH", "built_at": EPOCH, **values})


def message(payload: bytes = b"{}", source: str = "koji", **values: Any) -> Message:  # noqa: ANN401
    return Message(source, payload, EPOCH, **values)


def leases(store: ResultStore, clock: HandClock, holder: str = "elsewhere:1:2:3", bed_classes: Sequence[str] = ()) -> Leases:
    return Leases(store, "local", bed_classes, holder=holder, clock=clock)


def always(*_: object) -> bool:
    return True


def never(*_: object) -> bool:
    return False


def claim(of: Leases) -> str | None:
    found = of.claim(always, lambda run_id: f"here/{run_id}")
    return found.build if found else None


def test_a_duplicate_is_counted_and_not_created_again(requests: Requests) -> None:
    order = Order(layers=("quick",), settings=("queues=2",), labels={"version": "3.5"}, baseline="last-stable")
    first = message(b'{"n": 1}\0\xff', delivery="d1", event="build")
    assert requests.add(first, [wanted(order=order)])[0] is MessageOutcome.REQUESTED
    assert requests.add(message(b"other", delivery="d2"), [wanted()])[0] is MessageOutcome.DUPLICATE
    # The same delivery is a duplicate, even if the rules now give another request.
    outcome, added = requests.add(first, [wanted("another")])
    assert (outcome, [each.is_new for each in added]) == (MessageOutcome.DUPLICATE, [False])
    (request,) = requests.find()
    assert (request.duplicates, request.order, request.event, request.state) == (2, order, "build", RequestState.NEW)
    assert requests.get(request.id).payload == first.payload
    others = [wanted(bed_class="nic"), wanted(scenario="OVS_VANILLA"), wanted("ovs-3.6")]
    assert all(each.is_new for each in requests.add(message(), others)[1])
    assert requests.add(message(source="git"), [wanted()])[1][0].is_new
    assert requests.add(message(), [])[0] is MessageOutcome.NO_RULE
    counts = {(each.source, each.outcome): each.messages for each in requests.source_counts()}
    assert counts == {("git", "requested"): 1, ("koji", "requested"): 2, ("koji", "duplicate"): 2, ("koji", "no rule"): 1}


def test_concurrent_adds_create_one_request(location: str) -> None:
    barrier = threading.Barrier(8)
    outcomes: list[MessageOutcome] = []

    def add() -> None:
        with ResultStore(location) as store:
            barrier.wait()
            outcomes.append(Requests(store).add(message(), [wanted()])[0])

    ResultStore(location).close()
    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [MessageOutcome.DUPLICATE] * 7 + [MessageOutcome.REQUESTED]
    with ResultStore(location) as store:
        assert [each.duplicates for each in Requests(store).find()] == [7]


def test_invalid_messages_are_kept_with_the_reason_up_to_a_rate(requests: Requests, clock: HandClock) -> None:
    outcome, added = requests.add_dead(message(b"\0poison"), "invalid JSON", 2)
    assert outcome is MessageOutcome.DEAD
    assert added
    dead = requests.get(added.id)
    assert (dead.state, dead.is_poison, dead.last_error) == (RequestState.DEAD, True, "invalid JSON")
    assert requests.get(dead.id).payload == b"\0poison"
    assert requests.add_dead(message(b"\0poison"), "invalid JSON", 2)[0] is MessageOutcome.DUPLICATE
    assert requests.add_dead(message(b"2"), "why", 2)[0] is MessageOutcome.DEAD
    assert requests.add_dead(message(b"3"), "why", 2) == (MessageOutcome.DEAD_NOT_KEPT, None)
    assert requests.add_dead(message(b"3", source="git"), "why", 2)[0] is MessageOutcome.DEAD
    clock.now += 3601
    assert requests.add_dead(message(b"4"), "why", 2)[0] is MessageOutcome.DEAD
    with pytest.raises(StoreError, match="replay"):
        requests.retry(dead.id, "tester")


def test_the_newest_build_of_a_package_and_tag_wins_in_any_order(requests: Requests, store: ResultStore, clock: HandClock) -> None:
    def add(build: str, at: float, **values: str) -> int:
        return requests.add(message(), [wanted(build, **{"package": "ovs", "tag": "f43", "built_at": EPOCH + at, **values})])[1][0].id

    first, other_tag, other_bed = add("1", 1), add("other", 9, tag="f44"), add("bed", 9, bed_class="nic")
    assert claim(leases(store, clock)) == "1"
    newest = add("3", 3)
    late = add("2", 2)
    states = {each.id: (each.state, each.superseded_by) for each in requests.find()}
    assert states[first] == (RequestState.SUPERSEDED, newest)
    assert states[late] == (RequestState.SUPERSEDED, newest)
    assert states[newest] == (RequestState.NEW, None)
    assert states[other_tag][0] == states[other_bed][0] == RequestState.NEW
    # A running request continues, and a cancelled request does not supersede others.
    requests.cancel(newest, "tester")
    last = add("2.5", 2.5)
    assert requests.get(last).state is RequestState.NEW
    assert [each.why for each in requests.changes(late)][-1] == f"request {newest} has a newer build"


def test_users_can_only_make_allowed_changes(requests: Requests, store: ResultStore, clock: HandClock) -> None:
    (added,) = requests.add(message(), [wanted()])[1]
    with pytest.raises(StoreError, match="is new"):
        requests.retry(added.id, "tester")
    requests.cancel(added.id, "tester")
    with pytest.raises(StoreError, match="nothing to cancel"):
        requests.cancel(added.id, "tester")
    requests.retry(added.id, "tester")
    mine = leases(store, clock)
    assert claim(mine)
    requests.cancel(added.id, "tester")
    with pytest.raises(StoreError, match="dispatcher on elsewhere"):
        requests.retry(added.id, "tester")
    mine.keep(requests.get(added.id), lease_holder="")
    requests.retry(added.id, "tester")
    assert requests.get(added.id).attempts == 0
    assert [(each.old, each.new) for each in requests.changes(added.id)][:2] == [("", "new"), ("new", "cancelled")]
    for number in (0, 99, 2**40):
        with pytest.raises(StoreError, match="no request"):
            requests.cancel(number, "tester")


def test_a_replay_uses_the_current_rules(requests: Requests) -> None:
    _, dead = requests.add_dead(message(b"{"), "invalid JSON")
    assert dead
    (made,) = requests.replay(dead.id, [wanted()], "tester")
    assert requests.get(dead.id).superseded_by == made.id
    requests.cancel(made.id, "tester")
    (again,) = requests.replay(made.id, [wanted(priority=7, order=Order(layers=("quick",)))], "tester")
    request = requests.get(made.id)
    assert (again.id, again.is_new, request.state, request.priority) == (made.id, True, RequestState.NEW, 7)
    assert request.order.layers == ("quick",)


def test_owners_take_turns_and_priority_counts_as_waiting_time(requests: Requests, store: ResultStore, clock: HandClock) -> None:
    def add(build: str, owner: str, **values: str | int) -> None:
        clock.now += 1
        requests.add(message(), [wanted(build, owner=owner, **values)])

    for number in (1, 2, 3):
        add(f"alice-{number}", "alice")
    add("bob-1", "bob")
    add("bob-2", "bob")
    add("urgent", "alice", priority=5)
    add("special", "bob", bed_class="nic100g", priority=9)
    mine, taken = leases(store, clock), []
    while build := claim(mine):
        taken.append(build)
        clock.now += 1
    assert taken == ["urgent", "alice-1", "bob-1", "alice-2", "bob-2", "alice-3"]
    assert claim(leases(store, clock, bed_classes=["nic100g"])) == "special"


def test_a_low_priority_request_waits_no_longer_than_the_difference_is_worth(
    requests: Requests, store: ResultStore, clock: HandClock
) -> None:
    requests.add(message(), [wanted("low", owner="bob", priority=-2)])
    mine, began_at = leases(store, clock), clock.now
    # There is always a request of a higher priority, and one request is served each minute.
    for number in range(100):
        requests.add(message(), [wanted(f"high-{number}", owner="alice", priority=1), wanted(f"more-{number}", owner="ann", priority=1)])
        clock.now += 60
        if claim(mine) == "low":
            break
    assert 3 * AGING_S < clock.now - began_at <= 3 * AGING_S + 180


def test_concurrent_dispatchers_never_claim_a_request_twice(location: str) -> None:
    with ResultStore(location) as store:
        Requests(store).add(message(), [wanted(f"build-{number}") for number in range(12)])
    barrier = threading.Barrier(4)
    taken: list[str] = []

    def take(number: int) -> None:
        with ResultStore(location) as store:
            mine = Leases(store, "local", holder=f"machine-{number}:1:2:3")
            barrier.wait()
            while build := claim(mine):
                taken.append(build)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(f"build-{number}" for number in range(12))


def test_a_lease_is_taken_over_when_it_expires_or_its_holder_ended(requests: Requests, store: ResultStore, clock: HandClock) -> None:
    requests.add(message(), [wanted()])
    here = leases(store, clock, this_process())
    gone = leases(store, clock, GONE)
    assert is_gone(GONE)
    assert not is_gone(this_process())
    assert claim(gone)
    (request,) = here.adopt(always)
    assert not gone.move(request, RequestState.RUNNING)
    assert not gone.is_mine(request)
    assert here.is_mine(request)
    other = leases(store, clock)
    assert other.adopt(always) == []
    clock.now += 50
    here.renew()
    clock.now += 50
    assert other.adopt(always) == []
    clock.now += 11
    assert other.adopt(never) == []
    assert [each.id for each in other.adopt(always)] == [request.id]
    assert not here.give_back(request, "", 0, counts=True)
    assert other.give_back(request, "busy", 10, counts=False)
    assert requests.get(request.id).attempts == 0
    assert claim(other) is None
    clock.now += 10
    assert claim(other) == "ovs-3.5"


def test_a_run_keeps_its_id_only_if_it_can_resume(requests: Requests, store: ResultStore, clock: HandClock) -> None:
    requests.add(message(), [wanted()])
    mine, ids = leases(store, clock), []
    for can_resume in (False, True, False):
        request = mine.claim({True: always, False: never}[can_resume], str)
        assert request
        ids.append(request.run_id)
        assert request.job_key == request.run_id
        assert mine.give_back(request, "failed", 0, counts=True)
    assert ids[0] == ids[1] != ids[2]


@given(start=st.sampled_from(RequestState), steps=st.lists(st.sampled_from(RequestState), max_size=12))
def test_a_done_request_stays_done(start: RequestState, steps: list[RequestState]) -> None:
    state, seen = start, [start]
    for step in steps:
        if step in TRANSITIONS[state]:
            state = step
            seen.append(state)
    if RequestState.DONE in seen:
        assert seen.index(RequestState.DONE) == len(seen) - 1


def test_filters_and_bounds(requests: Requests) -> None:
    requests.add(message(), [wanted("a%b"), wanted("ab", owner="bob")])
    assert [each.build for each in requests.find(RequestFilter(build="%"))] == ["a%b"]
    assert requests.count(RequestFilter(owner="bob", state=RequestState.NEW, source="koji")) == 1
    for values in ({"build": ""}, {"build": "x" * 201}, {"build": "a\nb"}, {"bed_class": "a b"}, {"priority": 1001}, {"extra": 1}):
        with pytest.raises(ValidationError):
            wanted(**values)


def test_a_done_request_can_be_measured_again_by_a_run_that_supersedes_the_first(
    requests: Requests, store: ResultStore, clock: HandClock
) -> None:
    requests.add(message(), [wanted()])
    mine = leases(store, clock)
    request = mine.claim(always, str)
    assert request
    assert not requests.get(request.id).may_be_retried
    assert mine.move(request, RequestState.DONE, verdict="measured", lease_holder="")
    run_id = requests.get(request.id).run_id
    assert run_id
    requests.retry(request.id, "tester")
    again = requests.get(request.id)
    assert (again.state, again.verdict, again.run_id) == (RequestState.NEW, "", None)
    assert again.order.run_arguments("P2P")[-1] == f"--supersedes={run_id}"
    # A run that never came to an end is superseded by none.
    assert claim(mine) == "ovs-3.5"
    requests.cancel(request.id, "tester")
    mine.keep(requests.get(request.id), lease_holder="")
    requests.retry(request.id, "tester")
    assert requests.get(request.id).order.supersedes == run_id


def test_requests_that_ended_long_ago_are_deleted_and_others_stay(store: ResultStore, requests: Requests, clock: HandClock) -> None:
    _, (old,) = requests.add(message(), [wanted("ovs-3.4", package="ovs")])
    _, (newer,) = requests.add(message(), [wanted("ovs-3.5", package="ovs", built_at=EPOCH + 1)])
    # The newer request superseded the older request.
    requests.cancel(newer.id, "tester")
    assert requests.get(old.id).superseded_by == newer.id
    _, (waiting,) = requests.add(message(), [wanted("dpdk-23")])
    clock.now = EPOCH + 100
    _, (undelivered,) = requests.add(message(), [wanted("dpdk-24")])
    outbox = Outbox(store, "here:1:1:1")
    outbox.address(lambda _notice: [])
    requests.cancel(undelivered.id, "tester")
    assert forget(store, EPOCH) == Forgotten()
    assert forget(store, EPOCH + 50) == Forgotten(requests=2)
    # The others ended later, have undelivered notifications, or have not ended.
    assert forget(store, EPOCH + 1000) == Forgotten()
    assert {each.id for each in requests.find()} == {waiting.id, undelivered.id}
    outbox.address(lambda _notice: [])
    assert forget(store, EPOCH + 1000) == Forgotten(requests=1)
    outcome, (again,) = requests.add(message(), [wanted("ovs-3.4", package="ovs")])
    assert outcome is MessageOutcome.REQUESTED
    assert requests.changes(again.id)
