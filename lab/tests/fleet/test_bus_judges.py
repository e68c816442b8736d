"""The real clients of Fedora's bus and of Koji check the laboratory: they send to it, read its messages, and query the same hub.

The clients are installed in a separate environment, which $RINGROAD_FLEET_JUDGES names (`make lab` makes it), and run as programs.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from koji_hub_double import KojiHubDouble, koji_hub
from rabbitmq import RabbitMq, rabbitmq
from simulated_engine import Cluster, SimulatedEngine, tiny_run

from ringroad_lab.deadline import wait_until
from ringroad_lab.fleet.dispatcher import Dispatcher, DispatcherSettings
from ringroad_lab.fleet.leases import Leases
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.fleet.rules import MessageRule
from ringroad_lab.fleet.sources.amqp import AmqpSource
from ringroad_lab.fleet.sources.interface import Intake
from ringroad_lab.fleet.sources.koji import KojiSource
from ringroad_lab.koji_hub import KojiHub
from ringroad_lab.notification.ci_message import CiMessage
from ringroad_lab.notification.delivery import targets
from ringroad_lab.request.model import RequestState
from ringroad_lab.store.result_store import ResultStore

__all__ = ["rabbitmq"]

PATIENCE_S = 300.0
TAG = "f43-updates-candidate"
RULE = MessageRule(
    name="tagged",
    source="koji",
    match={"@event": "org.fedoraproject.prod.buildsys.tag", "tag": TAG, "name": "openvswitch"},
    build="{name}-{version}-{release}",
    scenario="BRIDGE_VETH",
    owner="{owner}",
    baseline="v3.4",
)
CONTACT = {"team": "switches", "email": "switches@example.org", "docs": "https://lab.example/docs"}

# Sends a message about a tagged build with the fields in the argument, as the hub's plug-in does.
PUBLISH = """
import json, sys
from fedora_messaging import api
from koji_fedoramessaging_messages.tag import TagV1
message = TagV1(topic="buildsys.tag", body=json.loads(sys.argv[1]))
message.validate()
api.publish(message, timeout=120)
print(message.id)
"""
# Reads messages until one reports an end, and prints each in a line.
CONSUME = """
import json
from fedora_messaging import api, exceptions
def take(message):
    message.validate()
    print(json.dumps({"id": message.id, "topic": message.topic, "severity": message.severity, "body": message.body,
        "class": type(message).__name__}), flush=True)
    if message.topic.rpartition(".")[2] in ("complete", "error"):
        raise exceptions.HaltConsumer()
try:
    api.consume(take)
except exceptions.HaltConsumer as halt:
    assert halt.exit_code == 0
"""
# Prints data of a hub: the last event, the builds tagged after another event, and a build.
ASK_HUB = """
import json, sys, koji
session = koji.ClientSession(sys.argv[1])
history = session.queryHistory(tables=["tag_listing"], tag=sys.argv[2], afterEvent=int(sys.argv[3]))["tag_listing"]
print(json.dumps({"last": session.getLastEvent(), "history": history, "build": session.getBuild(int(sys.argv[4])),
    "before": session.getLastEvent(before=float(sys.argv[5]))}))
"""


@pytest.fixture
def judge() -> Path:
    """The interpreter of the environment."""
    folder = os.environ.get("RINGROAD_FLEET_JUDGES")
    if not folder:
        pytest.skip("RINGROAD_FLEET_JUDGES does not name an environment with the clients of the bus and the hub: `make lab` makes one")
    return Path(folder) / "bin" / "python"


@pytest.fixture
def settings(rabbitmq: RabbitMq, tmp_path: Path) -> dict[str, str]:
    """The environment in which fedora-messaging finds its settings; its queue receives the CI messages."""
    rabbitmq.declare(queue := str(uuid.uuid4()), "org.centos.prod.ci.#")
    (tmp_path / "bus.toml").write_text(
        f"""
        amqp_url = "{rabbitmq.url}"
        topic_prefix = "org.fedoraproject.prod"
        publish_exchange = "amq.topic"
        passive_declares = true
        callback = "none"
        [queues.{queue}]
        durable = true
        auto_delete = false
        exclusive = false
        arguments = {{}}
        [[bindings]]
        queue = "{queue}"
        exchange = "amq.topic"
        routing_keys = ["org.centos.prod.ci.#"]
        [exchanges."amq.topic"]
        type = "topic"
        durable = true
        auto_delete = false
        arguments = {{}}
        """
    )
    return {**os.environ, "FEDORA_MESSAGING_CONF": str(tmp_path / "bus.toml")}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with ResultStore(str(tmp_path / "results.db")) as store:
        yield store


@pytest.fixture
def hub() -> Iterator[KojiHubDouble]:
    with koji_hub() as made:
        yield made


def run(judge: Path, program: str, *arguments: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run([judge, "-c", program, *arguments], env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def tag_message(hub: KojiHubDouble, event: int) -> str:
    build = hub.builds[2_800_000 + event]
    fields = {"build_id": build["id"], "name": build["name"], "version": build["version"], "release": build["release"]}
    return json.dumps({**fields, "tag": TAG, "tag_id": 42, "user": "bodhi", "owner": "jdoe", "instance": "primary"})


@pytest.mark.parametrize(("capacity", "verdict", "result"), [(0.7e6, "regression", "failed"), (1.3e6, "improvement", "passed")])
def test_from_a_bus_message_to_a_ci_message(
    rabbitmq: RabbitMq,
    judge: Path,
    settings: dict[str, str],
    store: ResultStore,
    hub: KojiHubDouble,
    monkeypatch: pytest.MonkeyPatch,
    capacity: float,
    verdict: str,
    result: str,
) -> None:
    monkeypatch.setenv("BROKER_URL", rabbitmq.url)
    store.add_run(tiny_run("00000000-before"))
    store.set_baseline("v3.4", "00000000-before")
    cluster, requests = Cluster(store), Requests(store)
    cluster.on_submit = lambda job: cluster.finish(job.name, capacity=capacity)
    intake = Intake(requests, [RULE], lambda _text: None)
    queue = f"judge-{uuid.uuid4()}"
    bus = AmqpSource.model_validate(
        {"url_env": "BROKER_URL", "as": "koji", "queue": queue, "queue_type": "classic", "topics": ["org.fedoraproject.prod.buildsys.tag"]}
    )
    rabbitmq.declare(queue, *bus.topics)
    poll = KojiSource.model_validate({"hub": hub.url, "as": "koji", "tags": [TAG], "every_s": 1})
    notifier = CiMessage.model_validate({"url_env": "BROKER_URL", "hub": hub.url, "contact": CONTACT, "web_url": "https://lab.example"})
    watchers = [found for name, source in (("bus", bus), ("hub", poll)) if (found := source.watcher(name, intake))]
    dispatcher = Dispatcher(
        store,
        SimulatedEngine(cluster),
        Leases(store, "local"),
        DispatcherSettings(retry_wait_s=0.0, poll_s=0.05),
        watchers=watchers,
        recipients=targets([notifier]),
        say=lambda _text: None,
    )
    stopping = threading.Event()
    thread = threading.Thread(target=dispatcher.run, args=(stopping,))
    thread.start()
    try:
        assert wait_until(lambda: "getLastEvent" in [method for method, _, _ in hub.asked], PATIENCE_S)
        assert wait_until(lambda: bool(rabbitmq.consumers(queue)), PATIENCE_S)
        event = hub.tag("openvswitch", "1.fc43")
        message_id = run(judge, PUBLISH, tag_message(hub, event), env=settings).strip()
        received = [json.loads(line) for line in run(judge, CONSUME, env=settings).splitlines()]
        assert wait_until(lambda: requests.get(1).duplicates >= 1, PATIENCE_S)
    finally:
        stopping.set()
        thread.join(PATIENCE_S)
    rabbitmq.delete(queue)
    (request,) = requests.find()
    assert (request.state, request.verdict, request.owner) == (RequestState.DONE, verdict, "jdoe")
    # The message came from the bus or from the hub, whichever was faster.
    assert request.delivery in ("", message_id)
    assert [each["topic"].rpartition(".")[2] for each in received][-1] == "complete"
    assert len({each["id"] for each in received}) == len(received)
    last: dict[str, Any] = received[-1]
    assert (last["topic"], last["class"], last["severity"]) == ("org.centos.prod.ci.koji-build.test.complete", "Message", 20)
    body = last["body"]
    assert body["artifact"] == {
        **{"type": "koji-build", "id": 90_000_000 + event, "component": "openvswitch", "issuer": "jdoe", "scratch": False},
        "nvr": "openvswitch-3.5.0-1.fc43",
    }
    assert (body["test"]["result"], body["test"]["category"], body["test"]["type"]) == (result, "performance", "BRIDGE_VETH")
    assert body["run"]["url"] == f"https://lab.example/runs/{request.run_id}"
    assert {each["body"]["pipeline"]["id"] for each in received} == {body["pipeline"]["id"]}


def test_the_real_client_and_ours_read_the_same_from_the_double(judge: Path, hub: KojiHubDouble) -> None:
    first = hub.tag("openvswitch", "1.fc43", ago_s=3600)
    second = hub.tag("openvswitch", "2.fc43")
    hub.untag(first)
    ours = KojiHub(hub.url)
    build_id, moment = 2_800_000 + second, hub.events[-1][1] - 1800
    theirs = json.loads(run(judge, ASK_HUB, hub.url, TAG, str(first - 1), str(build_id), repr(moment)))
    last, before = ours.last_event(), ours.last_event(moment)
    assert last
    assert before
    assert {"id": last.id, "ts": last.at} == theirs["last"]
    assert {"id": before.id, "ts": before.at} == theirs["before"]
    assert before.id == first
    by_event: Callable[[dict[str, Any]], int] = lambda row: row["create_event"]  # noqa: E731
    left_out = {"_created_before_event", "_revoked_before_event"}
    found = [{name: value for name, value in row.items() if name not in left_out} for row in ours.tagged(TAG, first - 1, last.id)]
    wanted = [{name: value for name, value in row.items() if name not in left_out} for row in sorted(theirs["history"], key=by_event)]
    assert found == wanted
    assert ours.build(build_id) == theirs["build"]
