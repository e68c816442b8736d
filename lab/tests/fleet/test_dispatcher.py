"""The dispatcher with a simulated engine: from a request to its verdict, whatever fails, ends or is killed on the way."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulated_engine import Cluster, SimulatedEngine, tiny_run
from sqlalchemy.orm import Session

from fabricated_runs import EPOCH
from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import LabError, StoreFailedError
from ringroad_lab.fleet.dispatcher import ABANDONED_S, Dispatcher, DispatcherSettings
from ringroad_lab.fleet.engine.interface import Job
from ringroad_lab.fleet.holder import this_process
from ringroad_lab.fleet.leases import Leases
from ringroad_lab.fleet.outbox import Outbox
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.fleet.sources.interface import Watcher
from ringroad_lab.fleet.tables import DeliveryState
from ringroad_lab.notification.delivery import Target
from ringroad_lab.notification.interface import Notifier, Sender
from ringroad_lab.notification.message import Notice, Occasion
from ringroad_lab.record import RunState
from ringroad_lab.request.message import Message
from ringroad_lab.request.model import Order, RequestState, Wanted
from ringroad_lab.request.table import Request
from ringroad_lab.store.queries import RunFilter
from ringroad_lab.store.result_store import ResultStore

HERE = this_process().rpartition(":")[0]
QUICK = DispatcherSettings(attempts=3, retry_wait_s=0.0, poll_s=0.01, notify_wait_s=0.01)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with ResultStore(str(tmp_path / "results.db")) as store:
        yield store


@pytest.fixture
def requests(store: ResultStore) -> Requests:
    return Requests(store)


@pytest.fixture
def cluster(store: ResultStore) -> Cluster:
    made = Cluster(store)
    made.on_submit = made.finish_job
    return made


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder in memory, for a store that is synced hundreds of times."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        yield Path(folder)


class Listener(Sender):
    """A recipient that keeps its notifications."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.deliveries: list[str] = []

    address = "listener"

    def deliver(self, notice: Notice, delivery: str, within_s: float) -> None:
        self.notices.append(notice)
        self.deliveries.append(delivery)


class ListenerSettings(Notifier):
    """Notified of every end."""

    title = "Listens"
    on: tuple[Occasion, ...] = (Occasion.ALWAYS,)

    def make_sender(self) -> Sender:
        return Listener()


def listening(listener: Listener) -> list[Target]:
    return [Target("listener", ListenerSettings(), listener)]


def ask(requests: Requests, build: str = "ovs-3.5", **values: Any) -> int:  # noqa: ANN401
    wanted = Wanted(**{"build": build, "scenario": "BRIDGE_VETH", "built_at": EPOCH, **values})
    return requests.add(Message("koji", b"{}", EPOCH), [wanted])[1][0].id


def dispatcher(cluster: Cluster, number: int = 1, **values: Any) -> Dispatcher:  # noqa: ANN401
    """Return the dispatcher of an ended process of this machine."""
    leases = Leases(cluster.store, "local", holder=values.pop("holder", f"{HERE}:{number}.00"), clock=values.pop("clock", lambda: EPOCH))
    output = values.pop("output", [])
    return Dispatcher(cluster.store, SimulatedEngine(cluster), leases, values.pop("settings", QUICK), say=output.append, **values)


def dispatch(cluster: Cluster, number: int = 1, **values: Any) -> list[str]:  # noqa: ANN401
    output: list[str] = []
    dispatcher(cluster, number, output=output, **values).run(threading.Event(), once=True)
    return output


def one(requests: Requests) -> Request:
    (request,) = requests.find()
    return request


def test_a_request_becomes_a_run_and_a_verdict_that_is_reported(requests: Requests, cluster: Cluster) -> None:
    order = Order(layers=("quick",), settings=("queues = 2",), labels={"version": "3.5"})
    request_id, listener = ask(requests, order=order), Listener()
    dispatch(cluster, recipients=listening(listener))
    done = one(requests)
    assert (done.state, done.verdict, done.attempts, done.lease_holder) == (RequestState.DONE, "measured", 1, "")
    (job,) = cluster.submitted
    assert job.arguments == (
        *("run", "BRIDGE_VETH", "--layer=quick", "--set=queues = 2"),
        *("--label=version=3.5", "--label=build=ovs-3.5", f"--label=request={request_id}"),
    )
    assert [notice.record and notice.record.run_id for notice in listener.notices] == [done.run_id]
    assert [change.new for change in requests.changes(request_id)] == ["new", "submitted", "done"]


@pytest.mark.parametrize(("capacity", "verdict"), [(0.7e6, "regression"), (1.3e6, "improvement")])
def test_the_verdict_is_the_result_of_the_comparison_with_the_baseline(
    requests: Requests, cluster: Cluster, store: ResultStore, capacity: float, verdict: str
) -> None:
    store.add_run(tiny_run("00000000-before"))
    store.set_baseline("v3.4", "00000000-before")
    cluster.on_submit = lambda job: cluster.finish(job.name, capacity=capacity)
    ask(requests, order=Order(baseline="v3.4"))
    listener = Listener()
    dispatch(cluster, recipients=listening(listener))
    done = one(requests)
    assert done.verdict == verdict
    assert listener.notices[0].comparison
    assert listener.notices[0].comparison.baseline_run_id == "00000000-before"
    assert store.comparisons(str(done.run_id))[0].baseline_run_id == "00000000-before"


def test_the_first_build_has_no_run_to_compare_with(requests: Requests, cluster: Cluster) -> None:
    ask(requests, order=Order(baseline="last-stable"))
    dispatch(cluster)
    assert (one(requests).state, one(requests).verdict) == (RequestState.DONE, "measured")
    assert "no finished run" in requests.changes(1)[-1].why


def test_a_failing_run_is_resumed_and_finally_given_up(requests: Requests, cluster: Cluster, store: ResultStore) -> None:
    def half(job: Job) -> None:
        cluster.begin(job.name)
        cluster.end(job.name, 1, "Traceback\nthe disk is full")

    cluster.on_submit = half
    ask(requests)
    dispatch(cluster)
    dead = one(requests)
    assert (dead.state, dead.attempts, dead.lease_holder) == (RequestState.DEAD, 3, "")
    assert "ended with status 1" in dead.last_error
    assert "the disk is full" in dead.last_error
    assert [job.arguments[0] for job in cluster.submitted] == ["run", "resume", "resume"]
    cluster.on_submit = cluster.finish_job
    requests.retry(dead.id, "tester")
    dispatch(cluster)
    assert (one(requests).state, one(requests).last_error) == (RequestState.DONE, "")
    assert one(requests).run_id != dead.run_id
    assert store.count(RunFilter(state=RunState.FINISHED)) == 1


@pytest.mark.parametrize("status", [2, 3])
def test_a_permanent_failure_is_given_up_at_once(requests: Requests, cluster: Cluster, status: int) -> None:
    cluster.on_submit = lambda job: cluster.end(job.name, status, "no such setting")
    ask(requests)
    dispatch(cluster)
    assert (one(requests).state, one(requests).attempts) == (RequestState.DEAD, 1)


def test_an_unavailable_engine_delays_requests_but_loses_none(requests: Requests, cluster: Cluster) -> None:
    ask(requests)
    cluster.is_down = True
    output: list[str] = []

    def say(text: str) -> None:
        output.append(text)
        cluster.is_down = False

    made = Dispatcher(cluster.store, SimulatedEngine(cluster), Leases(cluster.store, "local", holder=f"{HERE}:1.00"), QUICK, say=say)
    made.run(threading.Event(), once=True)
    assert "the cluster is down" in output[0]
    assert (one(requests).state, one(requests).attempts) == (RequestState.DONE, 1)


def test_a_lost_job_is_submitted_again_and_does_not_count_as_an_attempt(requests: Requests, cluster: Cluster) -> None:
    def lose(job: Job) -> None:
        cluster.lose(job.name)
        if len(cluster.submitted) == QUICK.attempts + 1:
            cluster.on_submit = cluster.finish_job

    cluster.on_submit = lose
    ask(requests)
    dispatch(cluster)
    assert (one(requests).state, one(requests).attempts) == (RequestState.DONE, 1)
    assert len({job.name for job in cluster.submitted}) == 1
    assert len(cluster.submitted) == QUICK.attempts + 2


def test_a_job_that_was_never_submitted_does_not_end_like_the_previous_attempt(
    requests: Requests, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As with Slurm: the key of a job is known once the job is submitted.
    monkeypatch.setattr(SimulatedEngine, "expected_key", lambda *_: "")

    def fail(job: Job) -> None:
        cluster.end(job.name, 1, "it failed")
        cluster.on_submit = cluster.finish_job
        # The dispatcher is killed when it has claimed the request again.
        monkeypatch.setattr(SimulatedEngine, "submit", lambda *_: sys.exit("killed"))

    cluster.on_submit = fail
    ask(requests)
    with pytest.raises(SystemExit):
        dispatch(cluster, settings=replace(QUICK, attempts=2))
    assert (one(requests).state, one(requests).attempts) == (RequestState.SUBMITTED, 2)
    monkeypatch.undo()
    dispatch(cluster, 2, settings=replace(QUICK, attempts=2))
    assert (one(requests).state, one(requests).attempts, len(cluster.submitted)) == (RequestState.DONE, 2, 2)


def test_an_unavailable_source_is_reported_once_and_delays_no_request(requests: Requests, cluster: Cluster) -> None:
    class Unavailable(Watcher):
        def look(self) -> None:
            raise LabError("the broker is unavailable")

    cluster.rooms = 2
    for build in ("ovs-3.5", "ovs-3.6"):
        ask(requests, build)
    output: list[str] = []
    made = dispatcher(cluster, watchers=[Unavailable()], output=output)
    made._step()
    assert len(cluster.submitted) == 2
    made.run(threading.Event(), once=True)
    assert output.count("the broker is unavailable") == 1
    assert [each.state for each in requests.find()] == [RequestState.DONE] * 2


def test_cancelled_and_superseded_requests_are_stopped(requests: Requests, cluster: Cluster) -> None:
    cluster.on_submit = lambda job: cluster.begin(job.name)
    request_id = ask(requests, package="ovs")
    made = dispatcher(cluster)
    made._step()
    made._step()
    assert requests.get(request_id).state is RequestState.RUNNING
    requests.cancel(request_id, "tester")
    made._step()
    (key,) = cluster.cancelled
    assert not made._step()
    cluster.stop(key.rpartition("/")[2])
    assert made._step()
    assert (one(requests).state, one(requests).lease_holder) == (RequestState.CANCELLED, "")
    # Claimed, but not begun: a newer build supersedes it.
    requests.retry(request_id, "tester")
    assert Leases(cluster.store, "local", holder=f"{HERE}:2.00").claim(lambda _key: False, str)
    newer = ask(requests, "ovs-3.6", package="ovs", built_at=EPOCH + 1)
    cluster.on_submit = cluster.finish_job
    dispatch(cluster)
    assert (requests.get(request_id).state, requests.get(request_id).lease_holder) == (RequestState.SUPERSEDED, "")
    assert requests.get(newer).state is RequestState.DONE


def test_an_orderly_stop_ends_the_run_and_the_next_dispatcher_resumes_it(requests: Requests, cluster: Cluster, store: ResultStore) -> None:
    cluster.on_submit = lambda job: cluster.begin(job.name)
    ask(requests)
    ask(requests, "ovs-3.6")
    stopping = threading.Event()
    made = dispatcher(cluster)
    thread = threading.Thread(target=made.run, args=(stopping,))
    thread.start()
    try:
        assert wait_until(lambda: requests.find()[1].state is RequestState.RUNNING, 30)
        stopping.set()
        assert wait_until(lambda: bool(cluster.cancelled), 30)
        cluster.stop(cluster.submitted[0].name)
    finally:
        stopping.set()
        thread.join(30)
    assert not thread.is_alive()
    assert [(each.state, each.attempts, each.lease_holder) for each in requests.find()] == [(RequestState.NEW, 0, "")] * 2
    cluster.on_submit = cluster.finish_job
    dispatch(cluster, 2)
    assert [each.state for each in requests.find()] == [RequestState.DONE] * 2
    assert [job.arguments[0] for job in cluster.submitted] == ["run", "resume", "run"]
    assert store.count() == 2


def test_jobs_that_outlive_dispatchers_are_left_to_the_next_one(
    requests: Requests, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimulatedEngine, "outlives_dispatchers", True)
    cluster.on_submit = lambda _job: None
    ask(requests)
    stopping = threading.Event()
    thread = threading.Thread(target=dispatcher(cluster).run, args=(stopping,))
    thread.start()
    try:
        assert wait_until(lambda: one(requests).state is RequestState.RUNNING, 30)
    finally:
        stopping.set()
        thread.join(30)
    assert not thread.is_alive()
    assert (one(requests).state, cluster.cancelled) == (RequestState.RUNNING, [])
    cluster.finish(cluster.submitted[0].name)
    dispatch(cluster, 2)
    assert (one(requests).state, one(requests).attempts, len(cluster.submitted)) == (RequestState.DONE, 1, 1)


def test_a_lost_machine_is_waited_for_and_then_another_measures_again(requests: Requests, cluster: Cluster, store: ResultStore) -> None:
    now = [1e10]
    ask(requests)
    gone = Leases(store, "local", holder="gone:1:2:3", clock=lambda: now[0] - 100)
    taken = gone.claim(lambda _key: False, lambda run_id: f"gone/{run_id}")
    assert taken
    store.begin_run(tiny_run(str(taken.run_id)).model_copy(update={"measurements": (), "state": RunState.STOPPED}))
    made = dispatcher(cluster, clock=lambda: now[0])
    # By this machine's clock the lease ended long ago only at the second attempt.
    assert not made._leases.adopt(lambda request, is_gone: request.lease_until + ABANDONED_S < now[0])
    now[0] += ABANDONED_S + 100
    assert made._leases.adopt(lambda request, is_gone: request.lease_until + ABANDONED_S < now[0])
    made.run(threading.Event(), once=True)
    assert one(requests).state is RequestState.DONE
    assert one(requests).run_id != taken.run_id
    assert [job.arguments[0] for job in cluster.submitted] == ["run"]


class Killed(BaseException):
    """The process ends here without cleaning up."""


class CountedStore(ResultStore):
    """A store that a dispatcher loses at its n-th use, before or after the transaction, once or permanently."""

    left = 10**9
    after = False
    error: type[BaseException] = Killed

    @contextmanager
    def reading(self) -> Iterator[Session]:
        with self._counted(), super().reading() as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        with self._counted(), super().writing() as session:
            yield session

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.left -= 1
        is_it = self.left == 0
        if is_it and not self.after:
            raise self.error("lost")
        yield
        if is_it:
            raise self.error("lost")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("what", [Killed, StoreFailedError])
def test_each_request_has_one_verdict_if_dispatcher_or_store_fail_at_any_step(
    in_memory: Path, what: type[BaseException], after: bool
) -> None:
    """The dispatcher ends, or loses the store, at its n-th use of the store, for every n until nothing is left to do."""
    ended_early = 0
    location = str(in_memory / "results.db")
    counted = CountedStore(location)
    with ResultStore(location) as plain, counted:
        requests = Requests(plain)
        for step in range(1, 300):
            cluster, listener = Cluster(plain), Listener()
            cluster.on_submit = cluster.finish_job
            request_id = ask(requests, f"build-{step}")
            counted.left, counted.error, counted.after = step, what, after
            leases = Leases(counted, "local", holder=f"{HERE}:1.00", clock=lambda: EPOCH)
            first = Dispatcher(counted, SimulatedEngine(cluster), leases, QUICK, recipients=listening(listener), say=lambda _text: None)
            try:
                first.run(threading.Event(), once=True)
            except Killed:
                ended_early += 1
            was_hit = counted.left <= 0
            dispatch(cluster, 2, recipients=listening(listener))
            request = requests.get(request_id)
            assert (request.state, request.verdict, request.lease_holder) == (RequestState.DONE, "measured", ""), step
            assert [change.new for change in requests.changes(request_id) if change.old != change.new].count("done") == 1
            assert plain.count() == plain.count(RunFilter(state=RunState.FINISHED)) == step
            assert {notice.record and notice.record.run_id for notice in listener.notices} == {request.run_id}
            # Sent again only if the result was unknown, and then as the same delivery.
            assert len(set(listener.deliveries)) == 1
            (notification,) = Outbox(plain).of_request(request_id)
            assert notification.state is DeliveryState.DELIVERED
            assert 1 <= len(listener.deliveries) <= notification.attempts <= 2
            if not was_hit:
                break
    assert 10 < step < 299
    assert bool(ended_early) == (what is Killed)
