"""Layers of settings: later layers win, tables merge, lists replace, and each setting records its origin."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ringroad_lab.errors import ScenarioError
from ringroad_lab.scenario.document import Document, KeyPath, parse_value, path_text

# A key that contains a dot is quoted: `dut."ovs-3.1".driver`.
_PART = r"""(?:"[^"]*"|[^."=]+)"""
_ASSIGNMENT = re.compile(rf"({_PART}(?:\.{_PART})*)=(.*)", re.DOTALL)
_KEY_PART = re.compile(r"""\s*"([^"]*)"\s*|([^."]+)""")


class LayerKind(StrEnum):
    """The kinds of layers, from the lowest to the highest."""

    DEFAULTS = "defaults"
    DUT = "DUT"
    TOPOLOGY = "topology"
    SCENARIO = "scenario"
    SITE = "site"
    HOST = "host"
    USER = "file"
    COMMAND_LINE = "command line"


@dataclass(frozen=True)
class Layer:
    """Settings from one source."""

    kind: LayerKind
    document: Document


@dataclass(frozen=True)
class Origin:
    """The origin of a setting."""

    kind: LayerKind
    source: str
    line: int | None
    rank: int
    """Position of its layer: of two settings, the setting with the higher rank wins."""

    def __str__(self) -> str:
        """Return a description for users: `scenario, .../OVS_DPDK1q.toml:3`."""
        if self.kind is LayerKind.COMMAND_LINE:
            return self.source
        return f"{self.kind}, {self.source}" + (f":{self.line}" if self.line else "")


@dataclass(frozen=True)
class Merged:
    """The merged settings of all layers."""

    tree: Mapping[str, Any]
    origins: Mapping[KeyPath, Origin]
    """Origin of each leaf: a value that is neither a table nor inside a list."""

    def origin(self, path: KeyPath) -> Origin | None:
        """Return the origin of the setting at a path; inside a list, of the list; for a table, of its latest setting."""
        for length in range(len(path), 0, -1):
            if found := self.origins.get(path[:length]):
                return found
        below = [origin for leaf, origin in self.origins.items() if leaf[: len(path)] == path]
        return max(below, key=lambda origin: origin.rank, default=None)


def merge(layers: Sequence[Layer]) -> Merged:
    """Merge layers, the lowest first."""
    tree: dict[str, Any] = {}
    origins: dict[KeyPath, Origin] = {}
    for rank, layer in enumerate(layers):
        tree = _merge_tables(tree, layer.document.tree, (), layer, rank, origins)
    return Merged(tree, origins)


def _merge_tables(
    below: Mapping[str, Any], above: Mapping[str, Any], path: KeyPath, layer: Layer, rank: int, origins: dict[KeyPath, Origin]
) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        here = (*path, key)
        under = result.get(key)
        if isinstance(value, dict):
            if not isinstance(under, dict):
                origins.pop(here, None)
                under = {}
            if not value and not under:
                origins[here] = _origin(layer, here, rank)
            elif value:
                origins.pop(here, None)
            result[key] = _merge_tables(under, value, here, layer, rank, origins)
        else:
            for leaf in [leaf for leaf in origins if leaf[: len(here)] == here]:
                del origins[leaf]
            origins[here] = _origin(layer, here, rank)
            result[key] = value
    return result


def _origin(layer: Layer, path: KeyPath, rank: int) -> Origin:
    return Origin(layer.kind, layer.document.source, layer.document.lines.get(path), rank)


def command_line_layers(assignments: Sequence[str]) -> list[Layer]:
    """Parse `--set` arguments: `queues=2`, `frames=[64, imix]`, `dut.ovs.settings.ports=afxdp`. In values texts need no quotes.

    Each argument is a layer, so that the last one wins.

    Raises:
        ScenarioError: an argument has another form.
    """
    layers = []
    for assignment in assignments:
        found = _ASSIGNMENT.fullmatch(assignment)
        path = tuple(bare.strip() or quoted for quoted, bare in _KEY_PART.findall(found[1])) if found else ()
        if not found or not all(path):
            raise ScenarioError(f"--set {assignment}: write KEY.PATH=VALUE, as in --set queues=2 or --set 'frames=[64, imix]'")
        source = f"--set {path_text(path)}"
        value = parse_value(found[2], source)
        for part in reversed(path):
            value = {part: value}
        layers.append(Layer(LayerKind.COMMAND_LINE, Document(source, value, {})))
    return layers
