"""Files of settings, TOML or YAML, as plain trees that know on which line each key is."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node

from ringroad_lab.errors import ScenarioError

KeyPath = tuple[str, ...]
"""Path of a key: `("dut", "ovs-dpdk", "settings", "n_rxq")`."""

SUFFIXES = (".toml", ".yaml", ".yml")
_MAX_DEPTH = 16
_MAX_BYTES = 1 << 20
# A few aliases of YAML within each other stand for more values than anyone waits for.
_MAX_VALUES = 100_000
_TOML_TABLE = re.compile(r"^\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?$")
_TOML_KEY = re.compile(r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_TOML_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


@dataclass(frozen=True)
class Document:
    """A file of settings, or what stands for one."""

    source: str
    """For people: a path, or `--set`."""
    tree: Mapping[str, Any]
    """Tables, lists, texts, numbers and truth values; nothing else. None unsets."""
    lines: Mapping[KeyPath, int]
    """Line of each key, from 1, as far as known."""


def path_text(path: KeyPath) -> str:
    """Write a path as users do: `dut.ovs-dpdk.driver`, `dut."ovs-3.1".driver`."""
    return ".".join(f'"{part}"' if "." in part else part for part in path)


def read_document(path: Path, source: str | None = None) -> Document:
    """Read a TOML or YAML file, by its suffix; `source` is what people know it as, where that is not its path.

    Raises:
        ScenarioError: it cannot be read, or is not what its suffix says; file and line are named.
    """
    source = source or str(path)
    if path.suffix not in SUFFIXES:
        raise ScenarioError(f"{source}: files of settings end in {', '.join(SUFFIXES)}")
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ScenarioError(f"{source}: {error.strerror}") from error
    if len(content) > _MAX_BYTES:
        raise ScenarioError(f"{source}: longer than 1 MiB, which no file of settings is")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{source}: not UTF-8 text (byte {error.start})") from error
    return parse_toml(text, source) if path.suffix == ".toml" else parse_yaml(text, source)


def parse_toml(text: str, source: str) -> Document:
    """Read TOML.

    Raises:
        ScenarioError: it is not TOML.
    """
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScenarioError(f"{source}: not TOML: {_first_words(error)}") from error
    _check_plain(tree, source)
    return Document(source, tree, _toml_lines(text))


def parse_yaml(text: str, source: str) -> Document:
    """Read YAML, of its safe kind alone: no tag makes an object.

    Raises:
        ScenarioError: it is not YAML, or not a table.
    """
    tree = parse_yaml_value(text, source)
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        raise ScenarioError(f"{source}: a table of settings is needed, not {_kind(tree)}")
    lines: dict[KeyPath, int] = {}
    _yaml_lines(YAML(typ="safe", pure=True).compose(text), (), lines)
    return Document(source, tree, lines)


def parse_yaml_value(text: str, source: str) -> Any:  # noqa: ANN401
    """Read a value as YAML writes it: `64`, `true`, `[64, imix]`, `any text`.

    Raises:
        ScenarioError: it is not YAML.
    """
    try:
        value = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark and "\n" in text else ""
        raise ScenarioError(f"{source}{place}: not YAML: {error.problem or error.context}") from error
    except (YAMLError, ValueError, RecursionError) as error:
        raise ScenarioError(f"{source}: not YAML: {_first_words(error)}") from error
    _check_plain(value, source)
    return value


def _first_words(error: Exception) -> str:
    """What a parser says, without what it advises programmers to do."""
    return str(error).partition("\n")[0].partition("; ")[0]


def _check_plain(tree: Any, source: str) -> None:  # noqa: ANN401
    """Refuse what no file of settings needs.

    Raises:
        ScenarioError: what, and under which key.
    """
    values = 0

    def check(value: Any, path: KeyPath) -> None:  # noqa: ANN401
        nonlocal values
        values += 1
        if values > _MAX_VALUES:
            raise ScenarioError(f"{source}: more than {_MAX_VALUES} values, which no file of settings has")
        where = f"{source}: {path_text(path)}: " if path else f"{source}: "
        if len(path) > _MAX_DEPTH:
            raise ScenarioError(f"{source}: {path_text(path[:3])}: tables and lists within each other, more than {_MAX_DEPTH} deep")
        if isinstance(value, dict):
            for key, item in value.items():
                if not isinstance(key, str):
                    raise ScenarioError(f"{where}the key {key!r} is not a text: quote it")
                _check_text(key, where)
                check(item, (*path, key))
        elif isinstance(value, list):
            for number, item in enumerate(value):
                check(item, (*path, str(number)))
        elif isinstance(value, str):
            _check_text(value, where)
        elif isinstance(value, float) and not math.isfinite(value):
            raise ScenarioError(f"{where}{value} is not a number to measure with")
        elif value is not None and not isinstance(value, bool | int | float):
            raise ScenarioError(f"{where}{_kind(value)} is no setting: texts, numbers, true, false, lists and tables are; quote a text")

    check(tree, ())


def _check_text(text: str, where: str) -> None:
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ScenarioError(f"{where}{text!r} is half of a character")


def _kind(value: object) -> str:
    names: dict[type, str] = {dict: "a table", list: "a list", str: "a text"}
    return names.get(type(value), f"a {type(value).__name__}")


def _toml_lines(text: str) -> dict[KeyPath, int]:
    """Find the lines of keys; tomllib tells none. What a text of several lines has in it may be taken for a key, which does no harm."""
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for number, line in enumerate(text.splitlines(), 1):
        if found := _TOML_TABLE.match(line):
            table = _toml_path(found[1])
            lines.setdefault(table, number)
        elif found := _TOML_KEY.match(line):
            lines.setdefault((*table, *_toml_path(found[1])), number)
    return lines


def _toml_path(text: str) -> KeyPath:
    return tuple(part[1:-1] if part[0] in "\"'" else part for part in _TOML_PART.findall(text))


def _yaml_lines(node: Node | None, path: KeyPath, lines: dict[KeyPath, int]) -> None:
    if isinstance(node, MappingNode) and len(path) <= _MAX_DEPTH:
        for key, value in node.value:
            below = (*path, str(key.value))
            lines[below] = key.start_mark.line + 1
            _yaml_lines(value, below, lines)
