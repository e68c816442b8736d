"""Verbs of requests, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ringroad_lab.cli.main import make_app
from ringroad_lab.errors import LabError, ScenarioError, StoreError
from ringroad_lab.fleet.outbox import Outbox
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.request.message import Message
from ringroad_lab.store.result_store import ResultStore


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("RINGROAD_LAB_STORE", str(tmp_path / "results.db"))
    monkeypatch.setenv("RINGROAD_LAB_CONFIG", str(tmp_path / "settings"))
    return str(tmp_path / "results.db")


def lab(*arguments: str) -> Result:
    result = CliRunner().invoke(make_app(), list(arguments))
    if isinstance(result.exception, LabError):
        raise result.exception
    return result


def test_a_request_is_made_listed_cancelled_and_retried() -> None:
    made = ("request", "ovs-3.5", "--scenario", "BRIDGE_VETH", "--label", "version=3.5", "--set", "queues=2", "--owner", "ann")
    assert lab(*made).stdout == "request 1: new\n"
    assert json.loads(lab(*made, "--json").stdout) == {"id": 1, "state": "new", "is_new": False}
    assert lab("request", "ovs-3.6", "--scenario", "BRIDGE_VETH").stdout == "request 2: new\n"
    listed = lab("requests", "--limit", "1")
    assert "ovs-3.6" in listed.stdout
    assert "and 1 more" in listed.stderr
    assert lab("cancel", "1").stdout == "request 1: cancelled\n"
    (row,) = json.loads(lab("requests", "--state", "cancelled", "--json").stdout)
    assert {
        "build": "ovs-3.5",
        "owner": "ann",
        "duplicates": 1,
        "settings": ["queues=2"],
        "labels": {"version": "3.5"},
    }.items() <= row.items()
    assert lab("retry", "1").stdout == "request 1: new\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x", "--scenario", "BRIDGE_VET"], "did you mean 'BRIDGE_VETH'"),
        (["x", "--scenario", "BRIDGE_VETH", "--layer", "quik"], "did you mean 'quick'"),
        (["x", "--scenario", "BRIDGE_VETH", "--label", "version"], "NAME=VALUE"),
        (["", "--scenario", "BRIDGE_VETH"], "build"),
        (["a\nb", "--scenario", "BRIDGE_VETH"], "cannot be printed"),
        (["x", "--scenario", "BRIDGE_VETH", "--bed-class", "a b"], "bed_class"),
        (["x", "--scenario", "BRIDGE_VETH", "--source", "a b"], "source"),
    ],
)
def test_what_cannot_be_requested_is_reported_at_once(arguments: list[str], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        lab("request", *arguments)
    assert json.loads(lab("requests", "--json").stdout) == []


def test_a_missing_request_is_named() -> None:
    for verb in ("cancel", "retry"):
        with pytest.raises(StoreError, match="no request 7"):
            lab(verb, "7")


def test_a_message_is_replayed_with_the_current_rules(store: str, tmp_path: Path) -> None:
    with ResultStore(store) as results:
        _, dead = Requests(results).add_dead(Message("koji", b'{"nvr": "ovs-3.5-1"}', 0.0), "a rule was wrong")
    assert dead
    with pytest.raises(StoreError, match="no rule matches"):
        lab("replay", "1")
    fleet = tmp_path / "fleet.toml"
    fleet.write_text('[[rule]]\nname = "r"\nsource = "koji"\nbuild = "{nvr}"\nscenario = "BRIDGE_VETH"\n')
    assert lab("replay", "1", "--fleet", str(fleet)).stdout == "request 2: new\n"
    states = {row["id"]: row["state"] for row in json.loads(lab("requests", "--json").stdout)}
    assert states == {1: "superseded", 2: "new"}
    lab("request", "x", "--scenario", "BRIDGE_VETH")
    with pytest.raises(StoreError, match="is not from a message"):
        lab("replay", "3", "--fleet", str(fleet))


def test_the_web_page_starts_only_with_the_secrets_of_its_sources(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text('[source.forge]\nkind = "github"\nsecret_file = "/nonexistent"\n')
    with pytest.raises(ScenarioError, match="source 'forge': /nonexistent cannot be read"):
        lab("serve", "--port", "0", "--fleet", str(fleet))


def test_an_unknown_engine_is_reported_with_a_suggestion() -> None:
    with pytest.raises(ScenarioError, match="no engine 'lokal'; did you mean 'local'"):
        lab("dispatch", "--engine", "lokal")


def test_a_request_is_shown_with_its_notifications_and_renotified(store: str) -> None:
    lab("request", "ovs-3.5", "--scenario", "BRIDGE_VETH", "--label", "version=3.5")
    lab("cancel", "1")
    shown = lab("requests", "1").stdout
    assert "build: ovs-3.5\n" in shown
    assert "cancelled" in shown
    assert "attempts" not in shown.partition("when")[2]
    with ResultStore(store) as results:
        outbox = Outbox(results, "here:1:1:1")
        outbox.address(lambda _notice: ["team"])
        notification = outbox.claim("team", 60)
        assert notification
        outbox.refused(notification, "the server answers\nwith status 404")
    assert "with status 404" in lab("requests", "1").stdout
    shown_as_json = json.loads(lab("requests", "1", "--json").stdout)
    assert [change["new"] for change in shown_as_json["changes"]] == ["new", "cancelled"]
    assert [(each["stage"], each["state"], each["attempts"]) for each in shown_as_json["notifications"]] == [
        ("queued", "undelivered", 1),
        ("error", "waiting", 0),
    ]
    assert lab("renotify", "1").stdout == "request 1: 2 notifications to send\n"
    assert lab("renotify", "1", "--all").stdout == "request 1: 2 notifications to send, and those to new recipients in the settings\n"
    with pytest.raises(StoreError, match="no request 7"):
        lab("requests", "7")
    with pytest.raises(StoreError, match="no request 7"):
        lab("renotify", "7")
