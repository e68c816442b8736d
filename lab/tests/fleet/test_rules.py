"""Rules: what a message leads to, whatever it contains; and the file of the rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ringroad_lab.cli.main import make_app
from ringroad_lab.errors import ScenarioError
from ringroad_lab.fleet.rules import Condition, MessageRule, apply_rules, conditions
from ringroad_lab.fleet.settings import read_fleet
from ringroad_lab.request.message import Message, MessageError, read_payload
from ringroad_lab.request.model import Wanted
from ringroad_lab.scenario.layers import command_line_layers

EPOCH = 1_700_000_000.0
TAGGED = {"name": "openvswitch", "version": "3.5.0", "release": "1", "tag": "f43", "owner": "ann", "new": 1, "at": "2026-11-25T16:30:00Z"}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def make(fields: Any, *rules: MessageRule, source: str = "koji", event: str = "") -> list[Wanted]:  # noqa: ANN401
    return apply_rules(rules, Message(source, json.dumps(fields).encode(), EPOCH, event))


def rule(**values: Any) -> MessageRule:  # noqa: ANN401
    return MessageRule(**{"name": "ovs", "build": "{name}-{version}", "scenario": "BRIDGE_VETH", **values})


def test_a_rule_defines_what_is_measured_for_a_message() -> None:
    (wanted,) = make(
        TAGGED,
        rule(
            match={"name": "openvswitch", "tag": {"glob": ["f4*", "el*"]}, "new": [1, 3], "@event": "tag"},
            layers=["quick"],
            settings={"dut": {"new": {"driver": "ovs", "build": {"package": "openvswitch={version}-{release}"}}}, "queues": 2},
            labels={"version": "{version}", "new": "{new}"},
            baseline="last-stable",
            bed_class="nic100g",
            priority=5,
            owner="{owner}",
            package="{name}",
            tag="{tag}",
            built_at="at",
        ),
        event="tag",
    )
    assert (wanted.build, wanted.owner, wanted.package, wanted.tag) == ("openvswitch-3.5.0", "ann", "openvswitch", "f43")
    assert wanted.order.labels == {"version": "3.5.0", "new": "1"}
    assert wanted.built_at == 1_795_624_200.0
    trees = [layer.document.tree for layer in command_line_layers(wanted.order.settings)]
    assert {"dut": {"new": {"build": {"package": "openvswitch=3.5.0-1"}}}} in trees
    assert {"queues": 2} in trees


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ({}, True),
        ({"name": "openvswitch"}, True),
        ({"name": "open*"}, False),
        ({"name": {"glob": "open*"}}, True),
        ({"name": ["dpdk", "openvswitch"]}, True),
        ({"name": ["dpdk"]}, False),
        ({"missing": "x"}, False),
        ({"new": True}, False),
        ({"new": 1.0}, True),
        ({"new": "1"}, False),
        ({"deep.list.1.id": 7}, True),
        ({"deep": {"list.1.id": 7}}, True),
        ({"deep.list.9.id": 7}, False),
        ({"name.x": 7}, False),
        ({"@source": {"glob": "ko*"}}, True),
        ({"name": "openvswitch", "tag": "f44"}, False),
    ],
)
def test_conditions(match: dict[str, Any], matches: bool) -> None:
    fields = TAGGED | {"deep": {"list": [{"id": 3}, {"id": 7}]}}
    assert bool(make(fields, rule(match=match))) is matches


def test_a_rule_of_another_source_does_not_match_and_the_first_of_two_counts() -> None:
    assert make(TAGGED, rule(source="git*")) == []
    same, other = rule(priority=1), rule(name="other", priority=2)
    assert [each.priority for each in make(TAGGED, same, other)] == [1]
    assert len(make(TAGGED, same, other.model_copy(update={"scenario": "OVS_VANILLA"}))) == 2


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "x"}, "needs the field version, which is missing in the message"),
        ({"name": "x", "version": {"a": 1}}, "not a text in the message"),
        ({"name": "x", "version": "1\n2"}, "cannot be printed"),
        ({"name": "x" * 300, "version": "1"}, "at most 200"),
        ({"name": "x", "version": "1", "at": "yesterday"}, "the field at is not a time"),
        ({"name": "x", "version": "1", "at": 1e300}, "built_at"),
        ([1], "not an object"),
    ],
)
def test_a_message_that_a_rule_cannot_use_is_reported(fields: Any, words: str) -> None:  # noqa: ANN401
    with pytest.raises(MessageError, match=words):
        make(fields, rule(built_at="at") if "at" in fields else rule())


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a": NaN}', b'{"a": ' + b"1" * 5000 + b"}"])
def test_invalid_json_is_reported(payload: bytes) -> None:
    with pytest.raises(MessageError, match="not JSON"):
        read_payload(payload)


@settings(max_examples=50)
@given(fields=st.dictionaries(st.sampled_from(["name", "version", "at", "deep"]), json_values))
def test_any_message_leads_to_requests_or_to_one_reason(fields: dict[str, Any]) -> None:
    rules = (rule(match={"deep.a": 1}), rule(built_at="at", scenario="OVS_VANILLA", settings={"dut": {"a": "{name}"}}))
    reason, found = "", []
    try:
        found = make(fields, *rules)
    except MessageError as error:
        reason = str(error)
    assert bool(found) != reason.startswith("rule 'ovs'")
    assert {each.scenario for each in found} <= {"BRIDGE_VETH", "OVS_VANILLA"}


@given(text=st.text(min_size=1, max_size=40).filter(str.isprintable))
def test_a_field_is_one_text_of_one_setting_and_nothing_else(text: str) -> None:
    (wanted,) = make({"name": text, "version": "1"}, rule(settings={"dut": {"new": {"build": {"package": ["{name}"]}}}}, build="b"))
    (layer,) = command_line_layers(wanted.order.settings)
    assert layer.document.tree == {"dut": {"new": {"build": {"package": [text]}}}}


@settings(max_examples=50)
@given(value=json_values, globbed=st.text(max_size=5))
def test_a_text_condition_holds_for_texts_only(value: object, globbed: str) -> None:
    for condition in (Condition("x", (globbed,), is_glob=True), Condition("x", (globbed,))):
        assert condition.holds(value) in (False, isinstance(value, str))
    assert not Condition("x", (1,)).holds(True)


@pytest.mark.parametrize("match", [{"a": {}}, {"a": []}, {"a": None}, {"a": {"glob": 1}}, {"a": {"glob": "x", "b": 1}}, {"a": [[1]]}])
def test_an_invalid_condition_is_rejected(match: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a: write"):
        conditions(match)


def write(folder: Path, text: str) -> Path:
    path = folder / "fleet.toml"
    path.write_text(text)
    return path


def check(*arguments: str) -> str:
    result = CliRunner().invoke(make_app(), ["rules", "check", *arguments])
    if result.exception:
        raise result.exception
    return result.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[sources.a]\n", r"sources: no such setting; did you mean 'source'.*line 1"),
        ('[source.a]\nkind = "githup"\nsecret_env = "A"\n', r"source.a.kind: 'githup' .* did you mean 'github'.*line 2"),
        ('[source.a]\nkind = "github"\n', "give one of secret_file and secret_env"),
        ('[source.a]\nkind = "folder"\nfolder = "here"\n', "not an absolute path"),
        ('[source."a b"]\nkind = "folder"\nfolder = "/a"\n', "up to 64 letters"),
        ("[engine.slurn]\n", "there is no engine 'slurn'"),
        ('[engine.slurm]\nfolder = "jobs"\n', "engine.slurm.folder: must be an absolute path.*line 2"),
        ('[engine.slurm]\noptions = ["--nice=1", "--wrap=true"]\n', "--wrap is reserved for the engine"),
        ('[engine.slurm]\noptions = ["-n4"]\n', "one long option of sbatch"),
        ('[bed.a]\nmachines = {dut = "b"}\n', "bed.a: has no machine of the role 'generator'"),
        ('[[rule]]\nname = "r"\nbuild = "b"\nscenario = "BRIDGE_VET"\n', "did you mean 'BRIDGE_VETH'"),
        ('[[rule]]\nname = "r"\nbuild = "b"\nscenario = "BRIDGE_VETH"\nlayers = ["quik"]\n', "did you mean 'quick'"),
        (
            '[[rule]]\nname = "r"\nbuild = "b"\nscenario = "BRIDGE_VETH"\nbaselin = "x"\n',
            "rule r.baselin: no such setting; did you mean 'baseline'",
        ),
        ('[[rule]]\nname = "r"\nbuild = "{}"\nscenario = "BRIDGE_VETH"\n', "write a field of the message in braces"),
        ('[[rule]]\nname = "r"\nbuild = "b"\nscenario = "BRIDGE_VETH"\nmatch.a = {glob = 1}\n', "a: write"),
        ('[[rule]]\nname = "r"\nscenario = "BRIDGE_VETH"\n', "rule r.build: is missing"),
        ("[[rule]]\n[source.a]\n", "3 problems|4 problems"),
        ("rule = 1\n", "must be tables"),
    ],
)
def test_problems_of_the_file_are_reported_with_their_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        read_fleet(write(tmp_path, text))


def test_check_prints_what_a_message_would_lead_to(tmp_path: Path) -> None:
    text = (
        '[source.koji]\nkind = "generic"\nsecret_env = "KOJI"\n'
        '[[rule]]\nname = "r"\nbuild = "{name}"\nscenario = "BRIDGE_VETH"\nmatch.name = "ovs"\nsettings.queues = 2\n'
    )
    file, message = write(tmp_path, text), tmp_path / "message.json"
    assert "1 rules, 1 sources" in check(str(file))
    message.write_text('{"name": "ovs"}')
    (wanted,) = json.loads(check(str(file), "--message", str(message), "--json"))
    assert (wanted["build"], wanted["order"]["settings"]) == ("ovs", ["queues = 2"])
    assert "queues = 2" in check(str(file), "--message", str(message))
    message.write_text('{"name": "dpdk"}')
    assert "no rule matches" in check(str(file), "--message", str(message))
    with pytest.raises(ScenarioError, match=r"rule 'r'.*queue.*did you mean 'queues'"):
        check(str(write(tmp_path, text.replace("queues", "queue"))))


def test_the_example_of_the_documentation_is_valid(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs/lab/fleet.md").read_text()
    file = write(tmp_path, text.partition("```toml\n")[2].partition("```")[0])
    assert "2 rules, 2 sources" in check(str(file))
    message = tmp_path / "message.json"
    message.write_text('{"action": "published", "repository": {"full_name": "example/ovs", "name": "ovs"}, "release": {"tag_name": "v3"}}')
    (wanted,) = json.loads(check(str(file), "--message", str(message), "--source", "forge", "--event", "release", "--json"))
    assert wanted["build"] == "ovs@v3"
