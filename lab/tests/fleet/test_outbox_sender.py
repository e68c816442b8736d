"""Notifications of requests to real servers that fail, hang, reject and recover; a slow server delays no other target."""

from __future__ import annotations

import email
import email.policy
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from notified_requests import COMMIT, ask, have_run, make_dead
from receivers import ADDRESS, HttpReceiver, MailReceiver, http_receiver, mail_receiver, write_certificate
from simulated_engine import tiny_run

from ringroad_lab.deadline import wait_until
from ringroad_lab.fleet.holder import this_process
from ringroad_lab.fleet.outbox import Outbox
from ringroad_lab.fleet.outbox_sender import OutboxSender
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.fleet.tables import DeliveryState, Notification
from ringroad_lab.notification import webhook
from ringroad_lab.notification.delivery import targets
from ringroad_lab.notification.github import GithubStatus
from ringroad_lab.notification.http import Answer, post
from ringroad_lab.notification.interface import Notifier, Sender
from ringroad_lab.notification.mail import Mail
from ringroad_lab.notification.message import Notice
from ringroad_lab.notification.webhook import Webhook
from ringroad_lab.request.model import RequestState
from ringroad_lab.store.result_store import ResultStore

PATIENCE_S = 60.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with ResultStore(str(tmp_path / "results.db")) as store:
        yield store


@pytest.fixture
def servers() -> Iterator[Callable[..., HttpReceiver]]:
    """Makes HTTP servers."""
    with ExitStack() as stack:

        def make(*statuses: int) -> HttpReceiver:
            return stack.enter_context(http_receiver(HttpReceiver(statuses=list(statuses or (200,)))))

        yield make


def hook(server: HttpReceiver, name: str = "hook", **more: Any) -> Webhook:  # noqa: ANN401
    return Webhook.model_validate({"url": server.url, "name": name, "on": ["always"], **more})


def outbox_sender(store: ResultStore, *notifiers: Notifier, output: list[str] | None = None) -> OutboxSender:
    say = (output if output is not None else []).append
    return OutboxSender(Outbox(store, this_process()), targets(notifiers), say, first_wait_s=0.02)


def send_until(sender: OutboxSender, is_over: Callable[[], bool]) -> bool:
    """Send notifications as a dispatcher does, until a condition holds."""

    def is_reached() -> bool:
        sender.look()
        sender.attend(threading.Event(), 0.05)
        return is_over()

    return wait_until(is_reached, PATIENCE_S)


def row(store: ResultStore, request_id: int, target: str = "hook") -> Notification:
    (found,) = [each for each in Outbox(store).of_request(request_id) if each.target == target]
    return found


def deliveries(server: HttpReceiver) -> list[str]:
    return [headers["x-ringroad-lab-delivery"] for _, headers, _ in server.got]


def test_a_failed_notification_is_retried_unchanged_until_it_is_delivered(store: ResultStore, servers: Callable[..., HttpReceiver]) -> None:
    server, output = servers(503, 500, 429, 200), list[str]()
    request_id = make_dead(store)
    sender = outbox_sender(store, hook(server), output=output)
    assert send_until(sender, lambda: sender.is_done and row(store, request_id).state is DeliveryState.DELIVERED)
    assert len(server.got) == 4
    assert len({(delivery, body) for delivery, (_, _, body) in zip(deliveries(server), server.got, strict=True)}) == 1
    content = json.loads(server.got[0][2])
    assert (content["stage"], content["verdict"], content["reason"]) == ("error", "dead", "invalid JSON")
    assert content["request"]["id"] == request_id
    assert row(store, request_id).attempts == 4
    assert row(store, request_id).delivery == deliveries(server)[0]
    # The failure is printed once.
    assert output == [f"request {request_id}: hook was not notified of error: the server answers with status 503"]


def test_a_notification_is_retried_unchanged_when_the_run_has_begun_meanwhile(
    store: ResultStore, servers: Callable[..., HttpReceiver]
) -> None:
    server = servers(503)
    request_id = ask(store)
    have_run(store)
    sender = outbox_sender(store, hook(server, stages=["running"], web_url="https://lab.example"))
    assert send_until(sender, lambda: bool(server.got))
    store.add_run(tiny_run(str(Requests(store).get(request_id).run_id)))
    server.statuses = [200]
    assert send_until(sender, lambda: sender.is_done and row(store, request_id).state is DeliveryState.DELIVERED)
    assert len({body for _, _, body in server.got}) == 1


def test_a_rejected_notification_is_retried_only_on_request(store: ResultStore, servers: Callable[..., HttpReceiver]) -> None:
    server = servers(404)
    request_id = make_dead(store)
    sender = outbox_sender(store, hook(server))
    assert send_until(sender, lambda: sender.is_done)
    refused = row(store, request_id)
    assert (refused.state, refused.last_error) == (DeliveryState.UNDELIVERED, "the server answers with status 404")
    server.statuses = [200]
    assert send_until(sender, lambda: sender.is_done)
    assert len(server.got) == 1
    Outbox(store).send_again(request_id, "tester")
    assert send_until(sender, lambda: sender.is_done)
    assert row(store, request_id).state is DeliveryState.DELIVERED
    assert len(server.got) == 2
    assert len(set(deliveries(server))) == 1


def test_a_hanging_server_delays_no_other_and_gets_everything_when_it_recovers(
    store: ResultStore, servers: Callable[..., HttpReceiver]
) -> None:
    hanging, good = servers(), servers()
    hanging.holding.set()
    ids = [make_dead(store, number) for number in range(8)]
    sender = outbox_sender(store, hook(hanging, "hanging", within_s=0.3), hook(good, "good"))
    assert send_until(sender, lambda: all(row(store, each, "good").state is DeliveryState.DELIVERED for each in ids))
    assert {row(store, each, "hanging").state for each in ids} == {DeliveryState.WAITING}
    assert send_until(sender, lambda: any("in time" in row(store, each, "hanging").last_error for each in ids))
    hanging.holding.clear()
    assert send_until(sender, lambda: all(row(store, each, "hanging").state is DeliveryState.DELIVERED for each in ids))
    assert len(good.got) == len(ids)
    assert set(deliveries(hanging)) == {row(store, each, "hanging").delivery for each in ids}


@contextmanager
def dripping_server(over: threading.Event) -> Iterator[int]:
    """A server that answers byte by byte and never ends; yields its port."""

    def answer(connection: socket.socket) -> None:
        # Beside load a byte may come too late, and the client hangs up.
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
            while not over.wait(0.05):
                connection.sendall(b"x")

    def serve() -> None:
        while True:
            connection, _ = server.accept()
            if over.is_set():
                connection.close()
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    with socket.create_server((ADDRESS, 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            socket.create_connection(server.getsockname()).close()
            thread.join()


def test_a_server_that_answers_byte_by_byte_occupies_only_one_thread(
    store: ResultStore, servers: Callable[..., HttpReceiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    good, over = servers(), threading.Event()
    under_way: Counter[str] = Counter()
    most: Counter[str] = Counter()

    def counted_post(url: str, *arguments: Any, **named: Any) -> Answer:  # noqa: ANN401
        under_way[url] += 1
        most[url] = max(most[url], under_way[url])
        try:
            return post(url, *arguments, **named)
        finally:
            under_way[url] -= 1

    monkeypatch.setattr(webhook, "post", counted_post)
    with dripping_server(over) as port:
        url = f"http://{ADDRESS}:{port}/"
        dripping = Webhook.model_validate({"url": url, "name": "dripping", "on": ["always"], "within_s": 1.0})
        ids = [make_dead(store, number) for number in range(4)]
        sender = outbox_sender(store, dripping, hook(good, "good"))
        assert send_until(sender, lambda: row(store, ids[0], "dripping").last_error == "delivery timed out")
        assert send_until(sender, lambda: all(row(store, each, "good").state is DeliveryState.DELIVERED for each in ids))
        later = make_dead(store, 9)
        assert send_until(sender, lambda: row(store, later, "good").state is DeliveryState.DELIVERED)
        assert most[url] == 1
        # The delivery has ended: the next one is tried.
        over.set()
        assert send_until(sender, lambda: row(store, ids[1], "dripping").attempts > 0)


def test_stages_reach_a_forge_in_order_after_it_was_unavailable(
    store: ResultStore, servers: Callable[..., HttpReceiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "t")
    forge = servers(502, 502, 502, 201)
    request_id = ask(store, commit=COMMIT, repository="example/switch")
    ask(store, "no commit")
    leases = have_run(store)
    (running,) = leases.held()
    assert leases.move(running, RequestState.DEAD, "no disk", lease_holder="", lease_until=0.0)
    status = GithubStatus.model_validate(
        {"api_url": forge.url.partition("/hook")[0], "token_env": "TOKEN", "name": "forge", "web_url": "http://lab"}
    )
    sender = outbox_sender(store, status)
    assert send_until(sender, lambda: [each.state for each in Outbox(store).of_request(request_id)] == [DeliveryState.DELIVERED] * 3)
    bodies = [json.loads(body) for _, _, body in forge.got]
    assert [body["state"] for body in bodies] == ["pending"] * 5 + ["error"]
    assert {body["target_url"] for body in bodies} == {f"http://lab/requests/{request_id}"}
    assert {body["context"] for body in bodies} == {"ringroad-lab/BRIDGE_VETH"}
    assert Outbox(store).of_request(request_id + 1) == []


def test_a_mail_about_a_dead_request_is_repeated_with_the_same_id_after_the_server_was_busy(store: ResultStore, tmp_path: Path) -> None:
    certificate = write_certificate(tmp_path / "certificate.pem")
    with mail_receiver(MailReceiver(replies=["451 later", "250 taken"]), certificate) as post:
        values = {"server": ADDRESS, "port": post.port, "ca_file": certificate, "sender": "lab@example.org", "to": ["team@example.org"]}
        request_id = make_dead(store)
        sender = outbox_sender(store, Mail.model_validate({**values, "name": "mail", "web_url": "http://lab"}))
        assert send_until(sender, lambda: row(store, request_id, "mail").state is DeliveryState.DELIVERED)
    mails = [email.message_from_bytes(each.content, policy=email.policy.default) for each in post.got if isinstance(each.content, bytes)]
    assert len(mails) == 2
    assert {mail["Message-ID"] for mail in mails} == {f"<{row(store, request_id, 'mail').delivery}@example.org>"}
    assert mails[0]["Subject"].endswith(": dead")
    assert "Reason: invalid JSON" in mails[0].get_content()
    assert f"http://lab/requests/{request_id}" in mails[0].get_content()


def test_a_dispatcher_without_recipients_leaves_events_to_others_for_a_while(
    store: ResultStore, servers: Callable[..., HttpReceiver]
) -> None:
    request_id, server = make_dead(store), servers()
    quiet = outbox_sender(store)
    quiet.look()
    assert quiet.is_done
    sender = outbox_sender(store, hook(server))
    assert send_until(sender, lambda: sender.is_done)
    assert row(store, request_id).state is DeliveryState.DELIVERED
    make_dead(store, 1)
    Outbox(store, clock=lambda: time.time() + 3500).forget()
    assert Outbox(store).is_any_new()
    Outbox(store, clock=lambda: time.time() + 3700).forget()
    assert not Outbox(store).is_any_new()


def test_a_status_counts_although_the_answer_breaks_off(store: ResultStore, servers: Callable[..., HttpReceiver]) -> None:
    server = servers(404)
    server.headers_answered = {"Content-Length": "100"}
    request_id = make_dead(store)
    sender = outbox_sender(store, hook(server, within_s=0.5))
    assert send_until(sender, lambda: sender.is_done)
    assert (row(store, request_id).state, row(store, request_id).attempts) == (DeliveryState.UNDELIVERED, 1)


class Broken(Notifier):
    """A kind of notifier that always fails."""

    title = "Broken"

    def make_sender(self) -> Sender:
        return BrokenSender()

    def concerns(self, notice: Notice) -> bool:
        raise KeyError("concerns")


class BrokenSender(Sender):
    """Its sender."""

    address = "broken"

    def deliver(self, notice: Notice, delivery: str, within_s: float) -> None:
        raise ZeroDivisionError("deliver")


def test_a_broken_kind_is_reported_and_does_not_affect_others(store: ResultStore, servers: Callable[..., HttpReceiver]) -> None:
    good, output = servers(), list[str]()
    request_id = make_dead(store)
    sender = outbox_sender(store, Broken(), hook(good), output=output)
    assert send_until(sender, lambda: row(store, request_id).state is DeliveryState.DELIVERED)
    assert send_until(sender, lambda: row(store, request_id, "broken").attempts > 1)
    broken = row(store, request_id, "broken")
    assert (broken.state, broken.last_error) == (DeliveryState.WAITING, "ZeroDivisionError while sending: deliver")
    assert any("KeyError" in text for text in output)


def test_a_delivery_under_way_when_a_dispatcher_stops_is_recorded(store: ResultStore, servers: Callable[..., HttpReceiver]) -> None:
    server = servers()
    server.holding.set()
    request_id = make_dead(store)
    sender = outbox_sender(store, hook(server))
    sender.look()
    assert wait_until(lambda: len(server.got) == 1, PATIENCE_S)
    stopping = threading.Event()
    stopping.set()
    sender.attend(stopping, PATIENCE_S)
    sender.note()
    assert sender.is_sending
    server.holding.clear()

    def is_noted() -> bool:
        sender.note()
        return not sender.is_sending

    assert wait_until(is_noted, PATIENCE_S)
    assert row(store, request_id).state is DeliveryState.DELIVERED
    assert len(server.got) == 1
