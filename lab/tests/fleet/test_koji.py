"""A Koji hub as a source, by a double of a hub: each tagged build is taken once, whatever fails and however often it is killed."""

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
from ringroad_lab.fleet.request import Message
from ringroad_lab.fleet.requests import Outcome, Requests
from ringroad_lab.fleet.rules import Rule
from ringroad_lab.fleet.sources.interface import Intake
from ringroad_lab.fleet.sources.koji import SETTLED_AFTER_S, KojiSource, KojiWatcher
from ringroad_lab.fleet.sources.koji_hub import HubError, KojiHub
from ringroad_lab.fleet.sources.own_thread import Patience
from ringroad_lab.store.result_store import ResultStore

TAG = "f43-updates-candidate"
RULE = Rule(
    name="tagged",
    source="koji",
    match={"@event": "org.fedoraproject.prod.buildsys.tag", "name": "openvswitch", "tag": [TAG, "c10s-gate"]},
    build="{name}-{version}-{release}",
    scenario="BRIDGE_VETH",
    owner="{owner}",
    package="{name}",
    tag="{tag}",
)
PATIENCE_S = 60.0


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


def watcher(hub: KojiHubDouble, requests: Requests, said: list[str] | None = None, **values: Any) -> KojiWatcher:  # noqa: ANN401
    intake = Intake(requests, [RULE], (said if said is not None else []).append)
    return KojiWatcher("hub", source(hub, **values), intake, Patience(answer_s=2.0, first_wait_s=0.02, longest_wait_s=0.1))


def builds(requests: Requests) -> list[tuple[str, str]]:
    return sorted((each.build, str(each.state)) for each in requests.find())


def test_what_is_tagged_since_the_first_look_is_taken_once(hub: KojiHubDouble, requests: Requests) -> None:
    hub.tag("openvswitch", "0.fc43", ago_s=3600)
    said: list[str] = []
    looks = watcher(hub, requests, said)
    looks.work()
    assert requests.count() == 0
    event = hub.tag("openvswitch", "1.fc43")
    hub.tag("dpdk", "1.fc43")
    hub.tag("openvswitch", "1.el10", "c10s-gate")
    for _ in range(2):
        looks.work()
    (request,) = requests.find()
    assert (request.build, request.source, request.owner, request.duplicates) == ("openvswitch-3.5.0-1.fc43", "koji", "jdoe", 0)
    assert request.event == "org.fedoraproject.prod.buildsys.tag"
    # The fields are those of the messages that the hub's plug-in sends to the bus.
    assert json.loads(requests.payload(request.id)) == {
        **{"build_id": 2_800_000 + event, "name": "openvswitch", "version": "3.5.0", "release": "1.fc43", "tag": TAG, "tag_id": 42},
        **{"user": TAGGER, "owner": "jdoe", "instance": "primary"},
    }
    assert said == [f"source 'hub': build {2_800_000 + event}: requested, request 1"]
    assert [(each.outcome, each.messages) for each in requests.source_counts()] == [("no rule", 1), ("requested", 1)]


def test_what_was_untagged_meanwhile_is_taken_all_the_same_and_an_untagging_is_nothing_new(hub: KojiHubDouble, requests: Requests) -> None:
    old = hub.tag("openvswitch", "0.fc43", ago_s=3600)
    looks = watcher(hub, requests)
    looks.work()
    new = hub.tag("openvswitch", "1.fc43")
    hub.untag(new)
    hub.untag(old)
    looks.work()
    assert builds(requests) == [("openvswitch-3.5.0-1.fc43", "new")]


def test_an_event_that_is_seen_after_a_later_one_is_not_missed(hub: KojiHubDouble, requests: Requests) -> None:
    looks = watcher(hub, requests)
    looks.work()
    number = hub.events[-1][0]
    hub.tag("openvswitch", "2.fc43", number=number + 2)
    looks.work()
    hub.tag("openvswitch", "1.fc43", number=number + 1, ago_s=5)
    looks.work()
    assert [name for name, _ in builds(requests)] == ["openvswitch-3.5.0-1.fc43", "openvswitch-3.5.0-2.fc43"]
    # It was tagged sooner, so the newer one keeps its place.
    assert [state for _, state in builds(requests)] == ["superseded", "new"]


def test_what_is_settled_is_not_asked_for_again(hub: KojiHubDouble, requests: Requests, store: ResultStore) -> None:
    looks = watcher(hub, requests)
    looks.work()
    first = Positions(store).get("hub", TAG)
    settled = hub.tag("openvswitch", "1.fc43", ago_s=SETTLED_AFTER_S + 60)
    hub.tag("openvswitch", "2.fc43")
    looks.work()
    assert Positions(store).get("hub", TAG) == settled
    # Another dispatcher begins there: what is not settled comes again, and is counted.
    watcher(hub, requests).work()
    asked = [named["afterEvent"] for method, _, named in hub.asked if method == "queryHistory"]
    assert asked == [first, settled]
    assert {each.build[-6:]: each.duplicates for each in requests.find()} == {"1.fc43": 0, "2.fc43": 1}


class Killed(BaseException):
    """Nothing of the process goes on from here."""


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_the_commit_nothing_is_lost_and_nothing_made_twice(
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
    looks = watcher(hub, failing)
    looks.work()
    hub.tag("openvswitch", "1.fc43", ago_s=SETTLED_AFTER_S + 60)
    with pytest.raises(StoreError):
        looks.work()
    failing.is_down = False
    looks.work()
    assert [each.duplicates for each in requests.find()] == [0]


def test_the_bus_and_the_hub_come_to_one_request(hub: KojiHubDouble, requests: Requests) -> None:
    looks = watcher(hub, requests)
    looks.work()
    event = hub.tag("openvswitch", "1.fc43")
    # As the hub's plug-in sends it, with an id of the message and no field in the same order.
    body = {
        **{"tag_id": 42, "tag": TAG, "build_id": 2_800_000 + event, "name": "openvswitch", "version": "3.5.0", "release": "1.fc43"},
        **{"owner": "jdoe", "user": TAGGER, "instance": "primary"},
    }
    message = Message("koji", json.dumps(body).encode(), 0.0, "org.fedoraproject.prod.buildsys.tag", "8b9d")
    assert receive(requests, [RULE], message).outcome is Outcome.REQUESTED
    looks.work()
    (request,) = requests.find()
    assert request.duplicates == 1


def test_a_hub_that_is_away_is_reported_and_asked_again(requests: Requests) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    double = KojiHubDouble()
    double.url = f"http://127.0.0.1:{port}/kojihub"
    looks = watcher(double, requests, every_s=1)
    told: list[str] = []

    def look() -> bool:
        try:
            looks.look()
        except LabError as error:
            told.append(str(error))
        return bool(told)

    try:
        assert wait_until(look, PATIENCE_S)
        assert told[0] == "source 'hub': hub 127.0.0.1 cannot be reached"
        with koji_hub(double, port):
            assert wait_until(lambda: Positions(requests.store).get("hub", TAG) is not None, PATIENCE_S)
            double.tag("openvswitch", "1.fc43")
            assert wait_until(lambda: requests.count() == 1, PATIENCE_S)
            looks.look()
    finally:
        looks.close()


def test_a_tag_that_is_not_there_hinders_no_other(hub: KojiHubDouble, requests: Requests) -> None:
    looks = watcher(hub, requests, tags=["f99", TAG])
    looks.work()
    hub.tag("openvswitch", "1.fc43")
    with pytest.raises(LabError, match=r"tag f99: .*No such tag: f99"):
        looks.work()
    assert requests.count() == 1


def test_a_hub_that_was_set_up_anew_is_reported_and_followed(hub: KojiHubDouble, requests: Requests, store: ResultStore) -> None:
    Positions(store).remember("hub", TAG, 10**9)
    said: list[str] = []
    looks = watcher(hub, requests, said)
    looks.work()
    assert "set up anew" in said[0]
    hub.tag("openvswitch", "1.fc43")
    looks.work()
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
def test_a_row_that_is_not_as_it_should_be_stops_no_other(hub: KojiHubDouble, requests: Requests, change: dict[str, object]) -> None:
    looks = watcher(hub, requests)
    looks.work()
    hub.tag("openvswitch", "0.fc43")
    hub.rows[-1].update(change)
    hub.tag("openvswitch", "1.fc43")
    looks.work()
    assert requests.find()[0].build == "openvswitch-3.5.0-1.fc43"
    assert not requests.find()[0].is_poison


def test_a_long_history_is_asked_for_in_parts(hub: KojiHubDouble) -> None:
    events = [hub.tag("openvswitch", f"{number}.fc43") for number in range(40)]
    asks = KojiHub(hub.url, max_answer_bytes=20_000)
    assert [row["create_event"] for row in asks.tagged(TAG, events[0] - 1, events[-1])] == events
    assert len(hub.asked) > 2
    with pytest.raises(HubError, match="longer than 500 bytes"):
        list(KojiHub(hub.url, max_answer_bytes=500).tagged(TAG, events[0] - 1, events[-1]))


@pytest.mark.parametrize(
    ("status", "answer", "match"),
    [
        (503, b"", "status 503"),
        (302, b"", "status 302"),
        (200, b"<html>", "not answer getLastEvent as a Koji hub does"),
        (200, b"<methodResponse><params><param><value><int>x</int></value></param></params></methodResponse>", "as a Koji hub does"),
        (200, b"<methodResponse><params><param><value><i8>7</i8></value></param></params></methodResponse>", "as a Koji hub does"),
        (200, b"<!DOCTYPE m><methodResponse><params><param><value>x</value></param></params></methodResponse>", "as a Koji hub does"),
        (200, b"<methodResponse></methodResponse>", "as a Koji hub does"),
        (200, b"\xff" * 5000, "as a Koji hub does"),
    ],
)
def test_what_no_hub_answers_is_reported(hub: KojiHubDouble, status: int, answer: bytes, match: str) -> None:
    hub.status, hub.answer = status, answer
    with pytest.raises(HubError, match=match):
        KojiHub(hub.url).last_event()


def test_a_hub_that_hangs_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(HubError, match="does not answer in time"):
        KojiHub(f"http://127.0.0.1:{silent.getsockname()[1]}/kojihub", answer_s=0.2).last_event()


@pytest.mark.parametrize("url", ["koji.example.org/kojihub", "file:///etc/passwd", "https://", "https://user:secret@example.org/"])
def test_a_url_that_is_none_of_a_hub_is_refused(url: str) -> None:
    with pytest.raises(ScenarioError, match="no URL of a hub"):
        KojiHub(url)


@pytest.mark.parametrize("values", [{"tags": []}, {"tags": [""]}, {"every_s": 0.1}, {"as": "a b"}, {"hubs": "x"}])
def test_settings_that_are_none_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        KojiSource.model_validate({"hub": "https://koji.example.org/kojihub", "tags": [TAG], **values})
