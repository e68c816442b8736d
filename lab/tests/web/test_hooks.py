"""Hooks: messages with the signature of their build system become requests once; the pages of requests show them."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

import pytest
from httpx import Response
from web_visitor import OWNER_TOKEN, TESTER, WebVisitor

from fabricated_runs import HOSTILE, fabricated_run
from ringroad_lab.fleet.leases import Leases
from ringroad_lab.fleet.outbox import Outbox
from ringroad_lab.fleet.requests import MAX_DEAD_AN_HOUR, Requests
from ringroad_lab.fleet.rules import MessageRule
from ringroad_lab.fleet.sources.http import HttpHook, HttpSource
from ringroad_lab.fleet.sources.interface import SOURCES
from ringroad_lab.record import LogExcerpt, RunState
from ringroad_lab.request.message import MAX_PAYLOAD_BYTES
from ringroad_lab.request.model import NOT_INSTALLED, RequestState
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.web.application import make_application
from ringroad_lab.web.settings import WebSettings

SECRET = b"a shared secret"
HTTP_SOURCES = {kind: source for kind, source in SOURCES.items() if issubclass(source, HttpSource)}
RULE = MessageRule(name="releases", match={"action": "released"}, build="{repository.name}-{tag}", scenario="BRIDGE_VETH", owner="{who}")
RELEASED = {"action": "released", "repository": {"name": "ovs"}, "tag": "3.5", "who": "ann"}


@pytest.fixture
def builder(store: ResultStore) -> WebVisitor:
    """One client with hooks for all kinds of build systems."""
    hooks = {kind: HttpHook(source.dialect, SECRET) for kind, source in HTTP_SOURCES.items()}
    settings = WebSettings(owner=TESTER, owner_token=OWNER_TOKEN, hooks=hooks, rules=(RULE,))
    return WebVisitor(make_application(store, settings))


@pytest.fixture
def requests(store: ResultStore) -> Requests:
    return Requests(store)


def signature(kind: str, body: bytes, secret: bytes = SECRET) -> dict[str, str]:
    digest = hmac.new(secret, body, hashlib.sha256).hexdigest()
    return {
        "github": {"X-Hub-Signature-256": f"sha256={digest}"},
        "gitlab": {"X-Gitlab-Token": secret.decode()},
        "gitea": {"X-Gitea-Signature": digest},
        "generic": {"X-Ringroad-Lab-Signature-256": f"sha256={digest}"},
    }[kind]


def send(builder: WebVisitor, message: Any, kind: str = "github", headers: Mapping[str, str] | None = None) -> Response:  # noqa: ANN401
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    shown = signature(kind, body) if headers is None else headers
    response: Response = builder.client.post(f"/hooks/{kind}", content=body, headers=dict(shown))
    return response


@pytest.mark.parametrize("kind", HTTP_SOURCES)
def test_a_signed_message_becomes_a_request_once(builder: WebVisitor, requests: Requests, kind: str) -> None:
    source = HTTP_SOURCES[kind]
    delivery, event = source.dialect.deliveries[0], source.dialect.event
    headers = {**signature(kind, json.dumps(RELEASED).encode()), delivery: "d-1", event: "release"}
    first = send(builder, RELEASED, kind, headers)
    assert (first.status_code, first.json()["outcome"]) == (202, "requested")
    # The request is stored before the answer is sent.
    (request,) = requests.find()
    assert (request.source, request.build, request.owner, request.delivery, request.event) == (kind, "ovs-3.5", "ann", "d-1", "release")
    assert requests.get(request.id).payload == json.dumps(RELEASED).encode()
    again = send(builder, RELEASED, kind, headers)
    assert (again.status_code, again.json()["requests"]) == (200, [{"id": request.id, "state": "new", "is_new": False}])
    assert send(builder, RELEASED, kind).status_code == 200
    assert requests.get(request.id).duplicates == 2


@pytest.mark.parametrize("kind", HTTP_SOURCES)
def test_a_wrong_signature_is_refused_and_leaves_nothing(builder: WebVisitor, requests: Requests, kind: str) -> None:
    body = json.dumps(RELEASED).encode()
    wrong = [
        {},
        signature(kind, body, b"another"),
        dict.fromkeys(signature(kind, body), ""),
        dict.fromkeys(signature(kind, body), "sha256="),
    ]
    if kind != "gitlab":
        wrong.append(signature(kind, body + b" "))
    for headers in wrong:
        assert send(builder, body, kind, headers).status_code == 401
        assert send(builder, b"\0", kind, headers).status_code == 401
    response = builder.client.post("/hooks/github", content=body, headers={b"X-Hub-Signature-256": b"sha256=\xff\xfe"})
    assert response.status_code == 401
    assert requests.count() == 0
    assert requests.source_counts() == []
    builder.log_in()
    assert builder.get("/api/requests").json()["refused_since_start"]["github"] >= 1
    assert "missing or wrong signature" in builder.get("/requests").text


def test_a_message_without_a_rule_is_counted_and_not_stored(builder: WebVisitor, requests: Requests) -> None:
    for _ in range(2):
        answer = send(builder, {"action": "opened"})
        assert (answer.status_code, answer.json()["outcome"]) == (202, "no rule")
    assert requests.count() == 0
    assert [(each.outcome, each.messages) for each in requests.source_counts()] == [("no rule", 2)]


def test_invalid_messages_are_stored_with_their_bytes_up_to_a_rate(builder: WebVisitor, requests: Requests) -> None:
    assert send(builder, b"\0\xffpoison").status_code == 400
    half = send(builder, {"action": "released"})
    assert (half.status_code, half.json()["outcome"]) == (202, "dead")
    assert "needs the field" in half.json()["problem"]
    assert [requests.get(each.id).payload for each in requests.find()][-1] == b"\0\xffpoison"
    assert {each.state for each in requests.find()} == {RequestState.DEAD}
    for number in range(MAX_DEAD_AN_HOUR - 2):
        assert send(builder, b"poison %d" % number).status_code == 400
    assert send(builder, b"one too many").status_code == 429
    assert send(builder, RELEASED).status_code == 202
    assert requests.count() == MAX_DEAD_AN_HOUR + 1


def test_long_messages_and_unknown_sources_are_refused(builder: WebVisitor, requests: Requests) -> None:
    for length, status in ((MAX_PAYLOAD_BYTES, 400), (MAX_PAYLOAD_BYTES + 1, 413)):
        assert send(builder, b"x" * length).status_code == status
    answer = builder.client.post("/hooks/nobody", content=b"{}")
    assert (answer.status_code, answer.json()) == (404, {"errors": ["there is no such source"]})
    assert builder.client.get("/hooks/github").status_code == 405
    assert requests.count() == 1


def test_a_store_failure_is_reported_so_that_the_message_is_sent_again(builder: WebVisitor, store: ResultStore) -> None:
    with store.writing() as session:
        session.connection().exec_driver_sql("ALTER TABLE request RENAME TO gone")
    assert send(builder, RELEASED).status_code == 503
    with store.writing() as session:
        session.connection().exec_driver_sql("ALTER TABLE gone RENAME TO request")
    assert send(builder, RELEASED).status_code == 202


def test_pages_of_requests_and_runs_link_to_each_other(builder: WebVisitor, store: ResultStore, requests: Requests) -> None:
    assert builder.get("/requests").status_code == 303
    assert builder.get("/api/requests").status_code == 401
    builder.log_in()
    send(builder, RELEASED | {"tag": "<b>3.5", "note": HOSTILE})
    send(builder, b"\x1b[31mpoison")
    for page in ("/requests", "/requests?state=new&build=ovs", "/requests/1", "/requests/2"):
        shown = builder.get(page)
        assert shown.status_code == 200
        assert "<b>3.5" not in shown.text
        assert "\x1b" not in shown.text
        assert "<script>alert" not in shown.text
    mine = Leases(store, "local")
    request = mine.claim(lambda _key: False, str)
    assert request
    assert "not started" in builder.get("/requests/1").text
    store.add_run(fabricated_run(run_id=request.run_id))
    assert mine.move(request, RequestState.RUNNING)
    assert mine.move(requests.get(1), RequestState.DONE, verdict="regression")
    assert f'href="/runs/{request.run_id}"' in builder.get("/requests/1").text
    assert f'href="/runs/{request.run_id}"' in builder.get("/requests").text
    assert 'href="/requests/1"' in builder.get(f"/runs/{request.run_id}").text
    for path in ("/requests/3", "/api/requests/3", "/api/requests/3/payload"):
        assert builder.get(path).status_code == 404
    assert builder.get("/requests?states=new").status_code == 400


def test_programs_read_requests(builder: WebVisitor) -> None:
    builder.log_in()
    send(builder, RELEASED)
    listed = builder.get("/api/requests?state=new").json()
    assert [each["build"] for each in listed["requests"]] == ["ovs-3.5"]
    assert listed["messages"][0]["outcome"] == "requested"
    assert [each["new"] for each in builder.get("/api/requests/1").json()["changes"]] == ["new"]
    payload = builder.get("/api/requests/1/payload")
    assert json.loads(payload.content) == RELEASED
    assert payload.headers["content-disposition"].startswith("attachment")


def test_logged_in_users_can_cancel_and_retry_requests(builder: WebVisitor, requests: Requests) -> None:
    send(builder, RELEASED)
    send(builder, b"poison")
    assert builder.client.post("/requests/1/cancel").headers["location"].startswith("/login")
    builder.log_in()
    assert builder.client.post("/requests/1/cancel").headers["location"] == "/requests/1"
    assert requests.get(1).state is RequestState.CANCELLED
    assert builder.client.post("/requests/1/cancel").status_code == 409
    assert builder.client.post("/requests/1/retry").status_code == 303
    assert builder.client.post("/requests/2/retry").status_code == 409
    assert requests.changes(1)[-1].actor == f"user {TESTER}"


def test_the_page_shows_notifications_and_logged_in_users_can_renotify(builder: WebVisitor, store: ResultStore, requests: Requests) -> None:
    send(builder, RELEASED)
    outbox = Outbox(store, "here:1:1:1")
    assert builder.client.post("/requests/1/renotify").headers["location"].startswith("/login")
    builder.log_in()
    assert "Notifications" not in builder.get("/requests/1").text
    outbox.address(lambda _notice: ["team", "<b>forge</b>"])
    for target in ("team", "<b>forge</b>"):
        notification = outbox.claim(target, 60)
        assert notification
        outbox.delivered(notification) if target == "team" else outbox.refused(notification, "the server answers with status 404")
    shown = builder.get("/requests/1").text
    assert "\u2713 delivered" in shown
    assert "\u2717 undelivered" in shown
    assert "&lt;b&gt;forge&lt;/b&gt;" in shown
    assert "<b>forge" not in shown
    assert "status 404" in shown
    assert "Notify now" in shown
    assert [(each["target"], each["state"], each["count"]) for each in builder.get("/api/requests").json()["undelivered"]] == [
        ("<b>forge</b>", "undelivered", 1)
    ]
    assert "Undelivered" in builder.get("/requests").text
    assert builder.client.post("/requests/1/renotify").headers["location"] == "/requests/1"
    notifications = builder.get("/api/requests/1").json()["notifications"]
    assert [(each["target"], each["stage"], each["state"]) for each in notifications] == [
        ("team", "queued", "delivered"),
        ("<b>forge</b>", "queued", "waiting"),
    ]
    assert requests.changes(1)[-1].actor == f"user {TESTER}"
    assert builder.client.post("/requests/9/renotify").status_code == 404


def test_a_build_that_was_not_installed_is_shown_with_its_log_and_can_be_retried(
    builder: WebVisitor, store: ResultStore, requests: Requests
) -> None:
    builder.log_in()
    send(builder, RELEASED)
    mine = Leases(store, "local")
    request = mine.claim(lambda _key: False, str)
    assert request
    assert request.run_id
    update = {"state": RunState.NOT_INSTALLED, "failure": "no rule to make switch", "measurements": ()}
    log = LogExcerpt(source="installing the build", text="compiling")
    store.add_run(fabricated_run(run_id=request.run_id).model_copy(update={**update, "logs": (log,)}))
    assert mine.move(request, RequestState.DONE, verdict=NOT_INSTALLED, last_error="no rule to make switch", lease_holder="")
    for page in ("/requests", "/requests/1"):
        assert "✗ not installed" in builder.get(page).text
    assert "no rule to make switch" in builder.get("/requests/1").text
    shown = builder.get(f"/runs/{request.run_id}").text
    assert '<span class="chip bad">not installed</span>: no rule to make switch' in shown
    assert "compiling" in builder.get(f"/runs/{request.run_id}/report.html").text
    again = '<form method="post" action="/requests/1/retry"><button type="submit" class="plain">Run again</button></form>'
    assert again in shown
    assert builder.client.post("/requests/1/retry").status_code == 303
    assert requests.get(1).state is RequestState.NEW
    assert requests.get(1).order.supersedes == request.run_id
    assert again not in builder.get(f"/runs/{request.run_id}").text
