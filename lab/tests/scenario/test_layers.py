"""Layers: later layers win, tables merge, lists replace, each setting has its origin."""

from __future__ import annotations

from typing import Any

import pytest

from ringroad_lab.errors import ScenarioError
from ringroad_lab.scenario.document import Document, parse_toml
from ringroad_lab.scenario.layers import Layer, LayerKind, command_line_layers, merge


def layer(kind: LayerKind, **tree: Any) -> Layer:  # noqa: ANN401
    return Layer(kind, Document(str(kind), tree, {}))


def test_tables_merge_and_lists_replace() -> None:
    merged = merge(
        [
            layer(LayerKind.DEFAULTS, frames=[64, 512], labels={"a": "1", "b": "1"}, queues=1),
            layer(LayerKind.SCENARIO, frames=[1518], labels={"b": "2", "c": "2"}),
        ]
    )
    assert merged.tree == {"frames": [1518], "labels": {"a": "1", "b": "2", "c": "2"}, "queues": 1}


def test_merging_changes_no_layer() -> None:
    lower = layer(LayerKind.DEFAULTS, labels={"a": "1"})
    merge([lower, layer(LayerKind.SITE, labels={"b": "2"})])
    assert lower.document.tree == {"labels": {"a": "1"}}


def test_each_leaf_has_its_layer_and_line() -> None:
    scenario = Layer(LayerKind.SCENARIO, parse_toml('queues = 2\n[dut.ovs]\nphysical = "veth"\n', "mine.toml"))
    merged = merge([layer(LayerKind.DEFAULTS, queues=1, flows=1), scenario, *command_line_layers(["queues=4"])])
    assert str(merged.origin(("queues",))) == "--set queues"
    assert str(merged.origin(("flows",))) == "defaults, defaults"
    assert str(merged.origin(("dut", "ovs", "physical"))) == "scenario, mine.toml:3"
    # The origin of a table is its latest setting; inside a list it is the list.
    assert str(merged.origin(("dut", "ovs"))) == "scenario, mine.toml:3"
    assert merged.origin(("dut", "none")) is None


def test_a_table_in_place_of_a_value_and_back() -> None:
    merged = merge([layer(LayerKind.DEFAULTS, a=1), layer(LayerKind.SITE, a={"b": 2}), layer(LayerKind.USER, a=3)])
    assert merged.tree == {"a": 3}
    assert list(merged.origins) == [("a",)]


def test_values_of_the_command_line() -> None:
    arguments = [
        "queues=2",
        "private=false",
        "frames=[64, imix, '64:7,594:4']",
        "guest=testpmd",
        "link_bps=1e10",
        "guest_cables=",
        "labels.a b=x=y",
        'dut."ovs-3.1".driver=ovs',
    ]
    tree = merge(command_line_layers(arguments)).tree
    assert tree == {
        "queues": 2,
        "private": False,
        "frames": [64, "imix", "64:7,594:4"],
        "guest": "testpmd",
        "link_bps": 1e10,
        "guest_cables": None,
        "labels": {"a b": "x=y"},
        "dut": {"ovs-3.1": {"driver": "ovs"}},
    }


@pytest.mark.parametrize("argument", ["queues", "=2", "a..b=1", ".a=1", "frames=[64", 'a."b=1', 'a.""=1', 'a."b"c=1'])
def test_a_layer_without_settings_is_rejected(argument: str) -> None:
    with pytest.raises(ScenarioError, match="--set"):
        command_line_layers([argument])
