"""A Koji hub as a source, with a double of a hub: each tagged build is taken once, whatever fails and however often it is killed."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from koji_hub_double import TAGGER, KojiHubDouble, koji_hub
from pydantic import ValidationError

from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import LabError, ScenarioError, StoreError
from ringroad_lab.fleet.intake import receive
from ringroad_lab.fleet.positions import Positions
from ringroad_lab.fleet.requests import MessageOutcome, Requests
from ringroad_lab.fleet.rules import MessageRule
from ringroad_lab.fleet.sources.interface import Intake
from ringroad_lab.fleet.sources.koji import SETTLED_AFTER_S, KojiSource, KojiWatcher
from ringroad_lab.fleet.sources.own_thread import Patience
from ringroad_lab.koji_hub import HubError, KojiHub
from ringroad_lab.request.message import Message
from ringroad_lab.store.result_store import ResultStore

TAG = "f43-updates-candidate"
RULE = MessageRule(
    name="tagged",
    source="koji",
    match={"@event": "org.fedoraproject.prod.buildsys.tag", "name": "openvswitch", "tag": [TAG, "c10s-gate"]},
    build="{name}-{version}-{release}",
    scenario="BRIDGE_VETH",
    owner="{owner}",
    package="{name}",
    tag="{tag}",
)
PATIENCE_S = 300.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with ResultStore(str(tmp_path / "results.db")) as store:
        yield store


@pytest.fixture
def requests(store: ResultStore) -> Requests:
    return Requests(store)


@pytest.fixture
def hub() -> Iterator[KojiHubDouble]:
    with koji_hub() as made:
        yield made


def source(hub: KojiHubDouble, **values: Any) -> KojiSource:  # noqa: ANN401
    return KojiSource.model_validate({"hub": hub.url, "tags": [TAG], "as": "koji", **values})


def watcher(hub: KojiHubDouble, requests: Requests, output: list[str] | None = None, **values: Any) -> KojiWatcher:  # noqa: ANN401
    intake = Intake(requests, [RULE], (output if output is not None else []).append)
    return KojiWatcher("hub", source(hub, **values), intake, Patience(answer_s=2.0, first_wait_s=0.02, longest_wait_s=0.1))


def builds(requests: Requests) -> list[tuple[str, str]]:
    return sorted((each.build, str(each.state)) for each in requests.find())


def test_builds_tagged_since_the_first_poll_are_taken_once(hub: KojiHubDouble, requests: Requests) -> None:
    hub.tag("openvswitch", "0.fc43", ago_s=3600)
    output: list[str] = []
    koji_watcher = watcher(hub, requests, output)
    koji_watcher.work()
    assert requests.count() == 0
    event = hub.tag("openvswitch", "1.fc43")
    hub.tag("dpdk", "1.fc43")
    hub.tag("openvswitch", "1.el10", "c10s-gate")
    for _ in range(2):
        koji_watcher.work()
    (request,) = requests.find()
    assert (request.build, request.source, request.owner, request.duplicates) == ("openvswitch-3.5.0-1.fc43", "koji", "jdoe", 0)
    assert request.event == "org.fedoraproject.prod.buildsys.tag"
    # The hub's plug-in sends messages with the same fields to the bus.
    assert json.loads(requests.get(request.id).payload) == {
        **{"build_id": 2_800_000 + event, "name": "openvswitch", "version": "3.5.0", "release": "1.fc43", "tag": TAG, "tag_id": 42},
        **{"user": TAGGER, "owner": "jdoe", "instance": "primary"},
    }
    assert output == [f"source 'hub': build {2_800_000 + event}: requested, request 1"]
    assert [(each.outcome, each.messages) for each in requests.source_counts()] == [("no rule", 1), ("requested", 1)]


def test_a_build_that_was_untagged_meanwhile_is_taken_and_an_untagging_is_not(hub: KojiHubDouble, requests: Requests) -> None:
    old = hub.tag("openvswitch", "0.fc43", ago_s=3600)
    koji_watcher = watcher(hub, requests)
    koji_watcher.work()
    new = hub.tag("openvswitch", "1.fc43")
    hub.untag(new)
    hub.untag(old)
    koji_watcher.work()
    assert builds(requests) == [("openvswitch-3.5.0-1.fc43", "new")]


def test_an_event_that_is_seen_after_a_later_one_is_not_missed(hub: KojiHubDouble, requests: Requests) -> None:
    koji_watcher = watcher(hub, requests)
    koji_watcher.work()
    number = hub.events[-1][0]
    hub.tag("openvswitch", "2.fc43", number=number + 2)
    koji_watcher.work()
    hub.tag("openvswitch", "1.fc43", number=number + 1, ago_s=5)
    koji_watcher.work()
    assert [name for name, _ in builds(requests)] == ["openvswitch-3.5.0-1.fc43", "openvswitch-3.5.0-2.fc43"]
    # It was tagged earlier, so the newer build is not superseded.
    assert [state for _, state in builds(requests)] == ["superseded", "new"]


def test_settled_events_are_not_queried_again(hub: KojiHubDouble, requests: Requests, store: ResultStore) -> None:
    koji_watcher = watcher(hub, requests)
    koji_watcher.work()
    first = Positions(store).get("hub", TAG)
    settled = hub.tag("openvswitch", "1.fc43", ago_s=SETTLED_AFTER_S + 60)
    hub.tag("openvswitch", "2.fc43")
    koji_watcher.work()
    assert Positions(store).get("hub", TAG) == settled
    # Another dispatcher begins there: unsettled builds come again, and are counted as duplicates.
    watcher(hub, requests).work()
    queried = [named["afterEvent"] for method, _, named in hub.asked if method == "queryHistory"]
    assert queried == [first, settled]
    assert {each.build[-6:]: each.duplicates for each in requests.find()} == {"1.fc43": 0, "2.fc43": 1}


class Killed(BaseException):
    """The process ends here without cleaning up."""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_around_the_commit_loses_nothing_and_makes_nothing_twice(
    hub: KojiHubDouble, requests: Requests, store: ResultStore, when: str
) -> None:
    class Dying(Requests):
        def add(self, *arguments: Any) -> Any:  # noqa: ANN401
            if when == "before":
                raise Killed
            super().add(*arguments)
            raise Killed

    watcher(hub, requests).work()
    hub.tag("openvswitch", "1.fc43", ago_s=SETTLED_AFTER_S + 60)
    with pytest.raises(Killed):
        watcher(hub, Dying(store)).work()
    watcher(hub, requests).work()
    (request,) = requests.find()
    assert request.duplicates == (1 if when == "after" else 0)


def test_a_store_that_fails_is_reported_and_the_builds_are_taken_later(hub: KojiHubDouble, requests: Requests, store: ResultStore) -> None:
    class Failing(Requests):
        is_down = True

        def add(self, *arguments: Any) -> Any:  # noqa: ANN401
            if self.is_down:
                raise StoreError("the store is down")
            return super().add(*arguments)

    failing = Failing(store)
    koji_watcher = watcher(hub, failing)
    koji_watcher.work()
    hub.tag("openvswitch", "1.fc43", ago_s=SETTLED_AFTER_S + 60)
    with pytest.raises(StoreError):
        koji_watcher.work()
    failing.is_down = False
    koji_watcher.work()
    assert [each.duplicates for each in requests.find()] == [0]


def test_the_bus_and_the_hub_make_one_request(hub: KojiHubDouble, requests: Requests) -> None:
    koji_watcher = watcher(hub, requests)
    koji_watcher.work()
    event = hub.tag("openvswitch", "1.fc43")
    # As the hub's plug-in sends it: with an id of the message, and with the fields in another order.
    body = {
        **{"tag_id": 42, "tag": TAG, "build_id": 2_800_000 + event, "name": "openvswitch", "version": "3.5.0", "release": "1.fc43"},
        **{"owner": "jdoe", "user": TAGGER, "instance": "primary"},
    }
    message = Message("koji", json.dumps(body).encode(), 0.0, "org.fedoraproject.prod.buildsys.tag", "8b9d")
    assert receive(requests, [RULE], message).outcome is MessageOutcome.REQUESTED
    koji_watcher.work()
    (request,) = requests.find()
    assert request.duplicates == 1


def test_an_unavailable_hub_is_reported_and_polled_again(requests: Requests) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    double = KojiHubDouble()
    double.url = f"http://127.0.0.1:{port}/kojihub"
    koji_watcher = watcher(double, requests, every_s=1)
    problems: list[str] = []

    def look() -> bool:
        try:
            koji_watcher.look()
        except LabError as error:
            problems.append(str(error))
        return bool(problems)

    try:
        assert wait_until(look, PATIENCE_S)
        assert problems[0] == "source 'hub': hub 127.0.0.1 cannot be reached"
        with koji_hub(double, port):
            assert wait_until(lambda: Positions(requests.store).get("hub", TAG) is not None, PATIENCE_S)
            double.tag("openvswitch", "1.fc43")
            assert wait_until(lambda: requests.count() == 1, PATIENCE_S)
            koji_watcher.look()
    finally:
        koji_watcher.close()


def test_a_missing_tag_does_not_block_others(hub: KojiHubDouble, requests: Requests) -> None:
    koji_watcher = watcher(hub, requests, tags=["f99", TAG])
    koji_watcher.work()
    hub.tag("openvswitch", "1.fc43")
    with pytest.raises(LabError, match=r"tag f99: .*No such tag: f99"):
        koji_watcher.work()
    assert requests.count() == 1


def test_a_reset_hub_is_reported_and_followed(hub: KojiHubDouble, requests: Requests, store: ResultStore) -> None:
    Positions(store).remember("hub", TAG, 10**9)
    output: list[str] = []
    koji_watcher = watcher(hub, requests, output)
    koji_watcher.work()
    assert "the hub was reset" in output[0]
    hub.tag("openvswitch", "1.fc43")
    koji_watcher.work()
    assert requests.count() == 1


@pytest.mark.parametrize(
    "change",
    [
        {"release": None},
        {"name": ["openvswitch"] * 3, "release": {"a": 1}, "tag.name": TAG},
        {"creator_name": float("nan")},
        {"create_ts": float("nan")},
        {"create_ts": 1e300},
    ],
)
def test_an_invalid_row_does_not_block_others(hub: KojiHubDouble, requests: Requests, change: dict[str, object]) -> None:
    koji_watcher = watcher(hub, requests)
    koji_watcher.work()
    hub.tag("openvswitch", "0.fc43")
    hub.rows[-1].update(change)
    hub.tag("openvswitch", "1.fc43")
    koji_watcher.work()
    assert requests.find()[0].build == "openvswitch-3.5.0-1.fc43"
    assert not requests.find()[0].is_poison


def test_a_long_history_is_queried_in_parts(hub: KojiHubDouble) -> None:
    events = [hub.tag("openvswitch", f"{number}.fc43") for number in range(40)]
    client = KojiHub(hub.url, max_answer_bytes=20_000)
    assert [row["create_event"] for row in client.tagged(TAG, events[0] - 1, events[-1])] == events
    assert len(hub.asked) > 2
    with pytest.raises(HubError, match="longer than 500 bytes"):
        list(KojiHub(hub.url, max_answer_bytes=500).tagged(TAG, events[0] - 1, events[-1]))


@pytest.mark.parametrize(
    ("status", "answer", "match"),
    [
        (503, b"", "status 503"),
        (302, b"", "status 302"),
        (200, b"<html>", "invalid answer to getLastEvent"),
        (200, b"<methodResponse><params><param><value><int>x</int></value></param></params></methodResponse>", "invalid answer"),
        (200, b"<methodResponse><params><param><value><i8>7</i8></value></param></params></methodResponse>", "invalid answer"),
        (200, b"<!DOCTYPE m><methodResponse><params><param><value>x</value></param></params></methodResponse>", "invalid answer"),
        (200, b"<methodResponse></methodResponse>", "invalid answer"),
        (200, b"\xff" * 5000, "invalid answer"),
    ],
)
def test_an_invalid_answer_is_reported(hub: KojiHubDouble, status: int, answer: bytes, match: str) -> None:
    hub.status, hub.answer = status, answer
    with pytest.raises(HubError, match=match):
        KojiHub(hub.url).last_event()


def test_a_hanging_hub_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(HubError, match="does not answer in time"):
        KojiHub(f"http://127.0.0.1:{silent.getsockname()[1]}/kojihub", answer_s=0.2).last_event()


@pytest.mark.parametrize("url", ["koji.example.org/kojihub", "file:///etc/passwd", "https://", "https://user:secret@example.org/"])
def test_an_invalid_hub_url_is_rejected(url: str) -> None:
    with pytest.raises(ScenarioError, match="not a hub URL"):
        KojiHub(url)


@pytest.mark.parametrize("values", [{"tags": []}, {"tags": [""]}, {"every_s": 0.1}, {"as": "a b"}, {"hubs": "x"}])
def test_invalid_settings_are_rejected(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        KojiSource.model_validate({"hub": "https://koji.example.org/kojihub", "tags": [TAG], **values})
