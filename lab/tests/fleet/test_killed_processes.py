"""Dispatchers and runs as separate processes that are killed: the next dispatcher resumes from what the kernel leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from notified_requests import make_dead
from receivers import HttpReceiver, http_receiver

from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import MachineBusyError
from ringroad_lab.fleet.outbox import Outbox
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.fleet.tables import DeliveryState
from ringroad_lab.record import RunState
from ringroad_lab.request.message import Message
from ringroad_lab.request.model import RequestState, Wanted
from ringroad_lab.request.table import Request
from ringroad_lab.sandbox.machine_lock import machine_holder, take_machine
from ringroad_lab.store.queries import RunFilter
from ringroad_lab.store.result_store import ResultStore

PATIENCE_S = 120.0


class Bench:
    """A store with a request, and dispatchers of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.location = str(folder / "results.db")
        self.store = ResultStore(self.location)
        self.requests = Requests(self.store)
        self.requests.add(Message("koji", b"{}", 0.0), [Wanted(build="ovs-3.5", scenario="BRIDGE_VETH", built_at=0.0)])
        self.dispatchers: list[subprocess.Popen[str]] = []
        tests = Path(__file__).parents[1]
        self.env = {**os.environ, "FABRICATED_FOLDER": str(folder)}
        self.env["PYTHONPATH"] = os.pathsep.join([*map(str, (tests, tests / "fleet")), *sys.path])

    def dispatch(self) -> subprocess.Popen[str]:
        program = [sys.executable, str(Path(__file__).parent / "dispatch_fabricated.py"), self.location, str(self.folder)]
        process = subprocess.Popen(program, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.dispatchers.append(process)
        return process

    @property
    def request(self) -> Request:
        (request,) = self.requests.find()
        return request

    def await_run(self, other_than: int = 0) -> int:
        """Wait until a run has measured half; return its process id."""
        assert wait_until(lambda: self.run_pid() not in (0, other_than), PATIENCE_S), self.said()
        return self.run_pid()

    def run_pid(self) -> int:
        file = self.folder / str(self.request.run_id)
        return int(file.read_text() or 0) if file.exists() else 0

    def said(self) -> str:
        for process in self.dispatchers:
            process.kill()
        return "".join(process.communicate()[0] for process in self.dispatchers)

    def go(self) -> None:
        (self.folder / "go").touch()

    def check_done(self, dispatcher: subprocess.Popen[str]) -> None:
        """Wait for the end; check that there is one run and one verdict."""
        assert dispatcher.wait(PATIENCE_S) == 0, self.said()
        request = self.request
        assert (request.state, request.verdict, request.lease_holder) == (RequestState.DONE, "measured", "")
        assert self.store.count() == self.store.count(RunFilter(state=RunState.FINISHED)) == 1
        assert len(self.store.get_run(str(request.run_id)).measurements) == 6
        changes = [change.new for change in self.requests.changes(request.id) if change.old != change.new]
        assert changes.count("done") == 1
        assert machine_holder() is None


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.go()
    made.said()
    for process in psutil.process_iter(["environ"]):
        if (process.info["environ"] or {}).get("FABRICATED_FOLDER") == str(tmp_path):
            process.kill()
    made.store.close()


def test_the_run_of_a_killed_dispatcher_continues_and_another_takes_it_over(bench: Bench) -> None:
    first = bench.dispatch()
    pid = bench.await_run()
    first.kill()
    first.wait()
    # The run still holds the machine.
    with pytest.raises(MachineBusyError, match=str(pid)):
        take_machine("another")
    second = bench.dispatch()
    assert wait_until(lambda: any("taken over" in change.why for change in bench.requests.changes(1)), PATIENCE_S)
    bench.go()
    bench.check_done(second)
    assert (bench.run_pid(), bench.request.attempts) == (pid, 1)


def test_a_killed_run_is_resumed_even_if_its_dispatcher_was_killed_too(bench: Bench) -> None:
    first = bench.dispatch()
    pid = bench.await_run()
    os.kill(pid, signal.SIGKILL)
    again = bench.await_run(pid)
    first.kill()
    first.wait()
    os.kill(again, signal.SIGKILL)
    bench.go()
    bench.check_done(bench.dispatch())
    assert bench.request.attempts == 3


def test_two_dispatchers_follow_one_that_is_stopped_in_order(bench: Bench) -> None:
    first = bench.dispatch()
    pid = bench.await_run()
    first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE_S) == 0, bench.said()
    assert (bench.request.state, bench.request.attempts) == (RequestState.NEW, 0)
    assert not psutil.pid_exists(pid)
    both = [bench.dispatch(), bench.dispatch()]
    bench.await_run(pid)
    bench.go()
    for each in both:
        bench.check_done(each) if each is both[-1] else each.wait(PATIENCE_S)
    assert bench.request.attempts == 1


def test_a_cancelled_request_ends_the_run_of_a_killed_dispatcher(bench: Bench) -> None:
    first = bench.dispatch()
    bench.await_run()
    first.kill()
    first.wait()
    bench.requests.cancel(1, "tester")
    second = bench.dispatch()
    assert second.wait(PATIENCE_S) == 0, bench.said()
    assert (bench.request.state, bench.request.lease_holder) == (RequestState.CANCELLED, "")
    # The run has released the machine, and may be about to end.
    assert machine_holder() is None
    assert [run.state for run in bench.store.summaries()] == [RunState.STOPPED]


@pytest.fixture
def hook(bench: Bench) -> Iterator[HttpReceiver]:
    """A server that the bench's dispatchers notify of every end."""
    with http_receiver(HttpReceiver()) as receiver:
        text = f'[[webhook]]\nname = "hook"\nurl = "{receiver.url}"\non = ["always"]\n'
        (bench.folder / "notifications.toml").write_text(text)
        yield receiver


def deliveries(hook: HttpReceiver) -> list[str]:
    return [headers["x-ringroad-lab-delivery"] for _, headers, _ in hook.got]


def test_a_notification_that_a_killed_dispatcher_was_sending_is_repeated_unchanged_by_the_next(bench: Bench, hook: HttpReceiver) -> None:
    hook.holding.set()
    bench.go()
    first = bench.dispatch()
    # The server has the whole notification, and this dispatcher never learns that.
    assert wait_until(lambda: len(hook.got) == 1, PATIENCE_S), bench.said()
    first.kill()
    first.wait()
    assert bench.request.state is RequestState.DONE
    hook.holding.clear()
    bench.check_done(bench.dispatch())
    assert len(hook.got) == 2
    assert len({(delivery, body) for delivery, (_, _, body) in zip(deliveries(hook), hook.got, strict=True)}) == 1
    (row,) = Outbox(bench.store).of_request(bench.request.id)
    assert (row.state, row.attempts, row.delivery) == (DeliveryState.DELIVERED, 2, deliveries(hook)[0])


def test_two_dispatchers_send_each_notification_once(bench: Bench, hook: HttpReceiver) -> None:
    hook.holding.set()
    bench.go()
    count = 30
    dead = [make_dead(bench.store, number) for number in range(count)]
    both = [bench.dispatch(), bench.dispatch()]
    # Both are sending, each its own message.
    assert wait_until(lambda: len(hook.got) == 2, PATIENCE_S), bench.said()
    hook.holding.clear()
    for each in both:
        assert each.wait(PATIENCE_S) == 0, bench.said()
    rows = [row for request_id in [1, *dead] for row in Outbox(bench.store).of_request(request_id)]
    assert [(row.state, row.attempts) for row in rows] == [(DeliveryState.DELIVERED, 1)] * (count + 1)
    assert sorted(deliveries(hook)) == sorted(row.delivery for row in rows)
