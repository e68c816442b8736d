"""An AMQP broker as a source, with a real RabbitMQ: each confirmed message leads to one request, whatever is killed or hangs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from rabbitmq import RabbitMq, rabbitmq

from ringroad_lab.amqp_broker import Broker, BrokerSettings
from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import LabError, ScenarioError, StoreError
from ringroad_lab.fleet.intake import receive
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.fleet.rules import MessageRule
from ringroad_lab.fleet.sources import amqp
from ringroad_lab.fleet.sources.amqp import AmqpSource, AmqpWatcher
from ringroad_lab.fleet.sources.interface import Intake
from ringroad_lab.fleet.sources.own_thread import Patience
from ringroad_lab.request.message import MAX_PAYLOAD_BYTES
from ringroad_lab.request.model import RequestState
from ringroad_lab.store.result_store import ResultStore

__all__ = ["rabbitmq"]

TOPIC = "org.fedoraproject.prod.buildsys.tag"
RULE = MessageRule(
    name="tagged",
    source="koji*",
    match={"@event": {"glob": "org.*.prod.buildsys.tag"}},
    build="{name}-{version}-{release}",
    scenario="BRIDGE_VETH",
    package="{name}",
)
PATIENCE_S = 300.0
QUICK = Patience(answer_s=20.0, first_wait_s=0.05, longest_wait_s=0.5)


@pytest.fixture
def requests(tmp_path: Path) -> Iterator[Requests]:
    with ResultStore(str(tmp_path / "results.db")) as store:
        yield Requests(store)


@pytest.fixture(autouse=True)
def broker_url(rabbitmq: RabbitMq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_URL", rabbitmq.url)


@pytest.fixture
def queue(rabbitmq: RabbitMq) -> Iterator[str]:
    """A queue of the test's own, for the messages about tagged builds."""
    name = f"test-{uuid.uuid4()}"
    rabbitmq.declare(name, TOPIC)
    yield name
    rabbitmq.delete(name)


class Bench:
    """A running source and its output."""

    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        self.said: list[str] = []
        self.watchers: list[AmqpWatcher] = []

    def start(
        self,
        patience: Patience = QUICK,
        requests: Requests | None = None,
        kept_as: str = "koji",
        **values: Any,  # noqa: ANN401
    ) -> AmqpWatcher:
        source = AmqpSource.model_validate({"url_env": "BROKER_URL", "as": kept_as, "topics": [TOPIC], "queue_type": "classic", **values})
        made = AmqpWatcher("bus", source, Intake(requests or self.requests, [RULE], self.said.append), patience)
        self.watchers.append(made)
        # On a busy machine the thread has found a problem before the first look ends.
        with suppress(LabError):
            made.look()
        return made

    def await_requests(self, count: int) -> None:
        assert wait_until(lambda: self.requests.count() == count, PATIENCE_S), self.problems()

    def await_messages(self, count: int) -> None:
        assert wait_until(lambda: sum(each.messages for each in self.requests.source_counts()) == count, PATIENCE_S), self.problems()

    def await_problem(self, text: str) -> None:
        assert wait_until(lambda: any(text in problem for problem in self.problems()), PATIENCE_S), self.problems()

    def problems(self) -> list[str]:
        found = []
        for watcher in self.watchers:
            try:
                watcher.look()
            except LabError as error:
                found.append(str(error))
        return found

    def stop(self) -> None:
        for watcher in self.watchers:
            watcher.close()
        self.watchers.clear()


@pytest.fixture
def bench(requests: Requests) -> Iterator[Bench]:
    made = Bench(requests)
    yield made
    made.stop()


def tagged(release: str, **more: object) -> bytes:
    return json.dumps(
        {
            **{"build_id": 2800001, "name": "openvswitch", "version": "3.5.0", "release": release, "tag": "f43", "tag_id": 42},
            **{"user": "bodhi", "owner": "jdoe", "instance": "primary", **more},
        }
    ).encode()


def test_a_message_makes_one_request_however_often_it_is_delivered(rabbitmq: RabbitMq, bench: Bench, queue: str) -> None:
    bench.start(queue=queue)
    for _ in range(2):
        rabbitmq.publish(TOPIC, tagged("1.fc43"), message_id="8b9d")
    rabbitmq.publish(TOPIC, tagged("1.fc43", user="another"), message_id="9c0e")
    bench.await_messages(3)
    (request,) = bench.requests.find()
    assert (request.build, request.source, request.event, request.delivery) == ("openvswitch-3.5.0-1.fc43", "koji", TOPIC, "8b9d")
    assert request.duplicates == 2
    assert bench.requests.get(request.id).payload == tagged("1.fc43")
    assert bench.said == ["source 'bus': message 8b9d: requested, request 1"]
    # All messages are acknowledged: none is delivered again.
    bench.stop()
    assert rabbitmq.waiting(queue) == 0


def test_an_unusable_message_is_kept_and_acknowledged(rabbitmq: RabbitMq, bench: Bench, queue: str) -> None:
    bench.start(queue=queue)
    long = tagged("2.fc43", more="x" * MAX_PAYLOAD_BYTES)
    rabbitmq.publish(TOPIC, b"\xff\x00 no JSON", b"[]", b'{"name": "openvswitch"}', long, long, tagged("1.fc43"))
    bench.await_messages(6)
    bench.stop()
    assert rabbitmq.waiting(queue) == 0
    found = {bench.requests.get(each.id).payload[:20]: each for each in bench.requests.find()}
    assert [each.state for each in found.values()].count(RequestState.DEAD) == 4
    assert "not JSON" in found[b"\xff\x00 no JSON"].last_error
    assert "needs the field" in found[b'{"name": "openvswitc'].last_error
    cut = next(each for each in found.values() if "bytes, more than" in each.last_error)
    assert (len(bench.requests.get(cut.id).payload), cut.duplicates) == (1 << 16, 1)


def test_a_message_that_cannot_be_processed_does_not_block_others(
    rabbitmq: RabbitMq, bench: Bench, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = receive

    def failing(requests: Requests, rules: Any, message: Any) -> Any:  # noqa: ANN401
        if b"9.fc43" in message.payload:
            raise ZeroDivisionError("a fault of ours")
        return real(requests, rules, message)

    monkeypatch.setattr(amqp, "receive", failing)
    bench.start(queue=queue)
    rabbitmq.publish(TOPIC, tagged("9.fc43"), tagged("1.fc43"))
    bench.await_requests(2)
    assert {str(each.state): "a fault of ours" in each.last_error for each in bench.requests.find()} == {"dead": True, "new": False}


def test_the_message_that_was_sent_last_wins_in_any_order_of_arrival(rabbitmq: RabbitMq, bench: Bench, queue: str) -> None:
    bench.start(queue=queue)
    rabbitmq.publish(TOPIC, tagged("2.fc43"), sent_at="2026-01-02T10:00:00+00:00")
    rabbitmq.publish(TOPIC, tagged("1.fc43"), sent_at="2026-01-02T09:00:00")
    # From a sender whose clock is wrong, or that always wants to win.
    rabbitmq.publish(TOPIC, tagged("3.fc43"), sent_at="9000-01-01T00:00:00+00:00")
    rabbitmq.publish(TOPIC, tagged("4.fc43"), sent_at="yesterday")
    bench.await_requests(4)
    states = {each.build.rpartition("-")[2]: str(each.state) for each in bench.requests.find()}
    assert states == {"1.fc43": "superseded", "2.fc43": "superseded", "3.fc43": "superseded", "4.fc43": "new"}


def test_without_the_store_no_message_is_acknowledged(rabbitmq: RabbitMq, bench: Bench, queue: str) -> None:
    class Failing(Requests):
        is_down = True

        def add(self, *arguments: Any) -> Any:  # noqa: ANN401
            if self.is_down:
                raise StoreError("the store is down")
            return super().add(*arguments)

    failing = Failing(bench.requests.store)
    bench.start(requests=failing, queue=queue)
    rabbitmq.publish(TOPIC, tagged("1.fc43"), tagged("2.fc43"))
    bench.await_problem("the store is down")
    failing.is_down = False
    bench.await_requests(2)
    assert wait_until(lambda: not bench.problems(), PATIENCE_S)
    bench.stop()
    assert rabbitmq.waiting(queue) == 0


def test_a_source_killed_between_commit_and_acknowledgement_gets_the_message_again(rabbitmq: RabbitMq, bench: Bench, queue: str) -> None:
    rabbitmq.publish(TOPIC, tagged("1.fc43"), message_id="8b9d")
    program = Path(__file__).parent / "take_and_die.py"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    died = subprocess.run([sys.executable, program, bench.requests.store.location, queue], env=env, timeout=PATIENCE_S, capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert bench.requests.count() == 1
    # With the same source name, as after a restart.
    bench.start(queue=queue, kept_as="bus")
    assert wait_until(lambda: bench.requests.get(1).duplicates == 1, PATIENCE_S)
    bench.stop()
    assert (bench.requests.count(), rabbitmq.waiting(queue)) == (1, 0)


def test_a_killed_broker_loses_no_confirmed_message(rabbitmq: RabbitMq, bench: Bench) -> None:
    names = {kind: f"killed-{kind}" for kind in ("quorum", "classic")}
    for kind, name in names.items():
        rabbitmq.declare(name, TOPIC, kind=kind)
        rabbitmq.await_settled(name)
    watchers = [bench.start(queue=name, queue_type=kind, kept_as=f"koji-{kind}") for kind, name in names.items()]
    assert wait_until(lambda: all(rabbitmq.consumers(name) for name in names.values()), PATIENCE_S)
    rabbitmq.publish(TOPIC, *(tagged(f"{number}.fc43") for number in range(20)))
    rabbitmq.kill()
    try:
        bench.await_problem("cannot be reached")
        assert wait_until(lambda: len(bench.problems()) == len(watchers), PATIENCE_S)
    finally:
        rabbitmq.start()
    rabbitmq.publish(TOPIC, tagged("20.fc43"))
    bench.await_requests(2 * 21)
    assert wait_until(lambda: not bench.problems(), PATIENCE_S)
    bench.stop()
    for name in names.values():
        assert rabbitmq.waiting(name) == 0
        rabbitmq.delete(name)


def test_a_hanging_broker_is_reported_and_used_again(rabbitmq: RabbitMq, bench: Bench, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp, "_CHECK_EVERY_S", 0.2)
    bench.start(Patience(answer_s=2.0, first_wait_s=0.05, longest_wait_s=0.5), queue=queue)
    assert wait_until(lambda: rabbitmq.consumers(queue) == 1, PATIENCE_S)
    rabbitmq.hang()
    try:
        bench.await_problem("does not answer within 2 s")
        # A new connection is not answered either.
        bench.await_problem("does not answer within 2 s")
    finally:
        rabbitmq.go_on()
    rabbitmq.publish(TOPIC, tagged("1.fc43"))
    bench.await_requests(1)


def test_a_deleted_queue_is_made_again(rabbitmq: RabbitMq, bench: Bench, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp, "_CHECK_EVERY_S", 0.2)
    bench.start(queue=queue)
    assert wait_until(lambda: rabbitmq.consumers(queue) == 1, PATIENCE_S)
    rabbitmq.delete(queue)
    bench.await_problem("bus")
    assert wait_until(lambda: not bench.problems(), PATIENCE_S)
    rabbitmq.publish(TOPIC, tagged("1.fc43"))
    bench.await_requests(1)


def test_a_temporary_queue_is_named_by_the_broker_and_ends_with_the_source(rabbitmq: RabbitMq, bench: Bench) -> None:
    bench.start(queue_type="temporary")
    named = f"{uuid.uuid4()}"
    bench.start(queue_type="temporary", queue=named, topics=["org.centos.#"])
    assert wait_until(lambda: not bench.problems() and all(watcher.is_at_work for watcher in bench.watchers), PATIENCE_S), bench.problems()
    rabbitmq.publish(TOPIC, tagged("1.fc43"))
    rabbitmq.publish("org.centos.prod.buildsys.tag", tagged("1.el10"))
    bench.await_requests(2)
    bench.stop()
    with pytest.raises(Exception, match="NOT_FOUND"):
        rabbitmq.consumers(named)


def test_the_source_waits_until_an_existing_queue_is_made(rabbitmq: RabbitMq, bench: Bench) -> None:
    name = f"later-{uuid.uuid4()}"
    bench.start(queue=name, queue_type="existing", topics=[])
    bench.await_problem("NOT_FOUND")
    rabbitmq.declare(name, TOPIC)
    rabbitmq.publish(TOPIC, tagged("1.fc43"))
    bench.await_requests(1)
    bench.stop()
    rabbitmq.delete(name)


def test_the_source_authenticates_by_certificate(rabbitmq: RabbitMq, bench: Bench, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_URL", rabbitmq.tls_url)
    files: dict[str, Any] = {"ca_file": rabbitmq.authority, "certificate_file": rabbitmq.certificate, "key_file": rabbitmq.certificate}
    bench.start(queue=queue, **files)
    rabbitmq.publish(TOPIC, tagged("1.fc43"))
    bench.await_requests(1)
    # No authority that the system knows has signed the certificate of this broker.
    del files["ca_file"]
    bench.start(queue=queue, **files)
    bench.await_problem("certificate verify failed")


def test_a_wrong_password_is_reported_but_not_shown(rabbitmq: RabbitMq, bench: Bench, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_URL", rabbitmq.url.replace("guest:guest", "guest:secret-password"))
    bench.start(queue=queue)
    bench.await_problem("rejected the login")
    assert "secret-password" not in "".join(bench.problems())


def test_a_broker_that_answers_nonsense_is_reported(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    import socketserver

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(100)
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            monkeypatch.setenv("BROKER_URL", f"amqp://127.0.0.1:{server.server_address[1]}/")
            bench.start(queue="any")
            bench.await_problem("source 'bus'")
            assert "failed" not in bench.problems()[0]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "values",
    [
        {"queue": ""},
        {"queue": "a", "topics": []},
        {"queue": "a", "queue_type": "existing"},
        {"queue": "a", "queue_type": "stream"},
        {"queue": "a", "prefetch": 0},
        {"queue": "a", "url_file": "/a"},
        {"queue": "a", "certificate_file": "/a"},
        {"queue": "a", "as": "a b"},
    ],
)
def test_invalid_settings_are_rejected(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        AmqpSource.model_validate({"url_env": "BROKER_URL", "topics": [TOPIC], **values})


@pytest.mark.parametrize("url", ["https://example.org/", "example.org", "amqp://", "amqp://[::1", "amqp://host:x/"])
def test_an_invalid_broker_url_is_rejected_and_not_shown(url: str, tmp_path: Path) -> None:
    (tmp_path / "url").write_text(url)
    with pytest.raises(ScenarioError, match=r"source 'bus': the broker's URL is invalid: write amqps://") as raised:
        Broker.of(BrokerSettings(url_file=tmp_path / "url"), "source 'bus'")
    assert raised.value.__cause__ is None


def test_invalid_certificates_are_rejected(tmp_path: Path, rabbitmq: RabbitMq) -> None:
    url, none = tmp_path / "url", tmp_path / "none.pem"
    url.write_text(rabbitmq.tls_url)
    none.write_text("no certificate")
    for files in ({"ca_file": none}, {"certificate_file": none, "key_file": none}, {"ca_file": tmp_path / "absent"}):
        with pytest.raises(ScenarioError, match="cannot be read, or is not a certificate"):
            Broker.of(BrokerSettings(url_file=url, **files), "source 'bus'")
    url.write_text(rabbitmq.url)
    with pytest.raises(ScenarioError, match="amqps://"):
        Broker.of(BrokerSettings(url_file=url, ca_file=none), "source 'bus'")


def test_a_blocked_source_does_not_block_the_dispatcher(requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher continues while the source waits for its broker."""
    waits, resumed = threading.Event(), threading.Event()

    class Stuck(AmqpWatcher):
        def work(self) -> float:
            waits.set()
            assert resumed.wait(PATIENCE_S)
            return 0.0

    stuck = Stuck("bus", AmqpSource(url_env="BROKER_URL", queue="a", topics=(TOPIC,)), Intake(requests, [RULE]), QUICK)
    stuck.look()
    assert waits.wait(PATIENCE_S)
    stuck.look()
    resumed.set()
    stuck.close()
