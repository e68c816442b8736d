"""The examples in the documentation's pages about fleets are valid."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest

from ringroad_lab.errors import ScenarioError
from ringroad_lab.fleet.rules import apply_rules
from ringroad_lab.fleet.settings import read_fleet
from ringroad_lab.request.message import Message

DOCS = Path(__file__).parents[3] / "docs" / "lab"
PAGES = [(DOCS / f"{name}.md").read_text() for name in ("fleet", "sources", "beds", "engines")]
FOUND = [textwrap.dedent(found) for page in PAGES for found in re.findall(r"^ *```toml\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL)]
# The other examples belong to notifications.toml, or are a part of a rule.
EXAMPLES = [found for found in FOUND if re.match(r"\[+(source|rule|engine|bed)\b", found)]
KOJI = {"new": 1, "name": "openvswitch3.5", "version": "3.5.0", "release": "1.el9"}
PUSH = {
    "ref": "refs/heads/main",
    "after": "a" * 40,
    "repository": {"name": "ovs", "clone_url": "/srv/ovs.git"},
    "pusher": {"name": "it's me"},
}


@pytest.mark.parametrize("example", EXAMPLES, ids=[f"example {number}" for number in range(len(EXAMPLES))])
def test_an_example_is_a_valid_settings_file(tmp_path: Path, example: str) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(example)
    settings = read_fleet(file)
    assert settings.rules or settings.engines or settings.sources or settings.beds


@pytest.mark.parametrize(
    ("source", "event", "fields", "setting"),
    [
        (
            *("koji", "", KOJI),
            "dut.ovs-dpdk.build.package = "
            '"https://koji.example/packages/openvswitch3.5/3.5.0/1.el9/x86_64/openvswitch3.5-3.5.0-1.el9.x86_64.rpm"',
        ),
        ("forge", "push", PUSH, f'dut.ovs.build.git.commit = "{"a" * 40}"'),
        ("forge", "push", PUSH, 'dut.ovs.build.git.environment.PUSHED_BY = "it\'s me"'),
    ],
)
def test_its_rules_name_the_build_of_a_message(tmp_path: Path, source: str, event: str, fields: dict[str, object], setting: str) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(next(example for example in EXAMPLES if "builds of a Koji" in example))
    (wanted,) = apply_rules(read_fleet(file).rules, Message(source, json.dumps(fields).encode(), 1e9, event))
    assert setting in wanted.order.settings


def test_a_field_in_a_recipe_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    example = next(example for example in EXAMPLES if "recipe = " in example)
    file.write_text(example.replace('recipe = "', 'recipe = "echo {pusher.name}; '))
    with pytest.raises(ScenarioError, match="the shell executes a recipe or a test step's run"):
        read_fleet(file)
