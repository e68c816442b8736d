"""Settings files in TOML, as plain trees with the line of each key."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringroad_lab.errors import ScenarioError

KeyPath = tuple[str, ...]
"""Path of a key: `("dut", "ovs-dpdk", "settings", "n_rxq")`."""

SUFFIX = ".toml"
_MAX_DEPTH = 16
_MAX_BYTES = 1 << 20
# A text on the command line that needs no quotes, and a list of such texts.
_BARE_TEXT = re.compile(r"""[^\[\]{}"'\n]*""")
_BARE_LIST = re.compile(r"""\[([^\[\]{}\n]*)\]""")
_LIST_ITEM = re.compile(r"""(?:'[^']*'|"[^"]*"|[^,'"])+""")
_TOML_TABLE = re.compile(r"^\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?$")
_TOML_KEY = re.compile(r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_TOML_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


@dataclass(frozen=True)
class Document:
    """A settings file, or settings of the command line."""

    source: str
    """Name for users: a path, or `--set`."""
    tree: Mapping[str, Any]
    """Tables, lists, texts, numbers and truth values; nothing else. None unsets."""
    lines: Mapping[KeyPath, int]
    """Line of each key, from 1, if known."""


def path_text(path: KeyPath) -> str:
    """Return a path in the notation of users: `dut.ovs-dpdk.driver`, `dut."ovs-3.1".driver`."""
    return ".".join(f'"{part}"' if "." in part else part for part in path)


def read_document(path: Path, source: str | None = None) -> Document:
    """Read a file; `source` names it for users if its path does not.

    Raises:
        ScenarioError: the file cannot be read, or is not TOML; with file and line.
    """
    source = source or str(path)
    if path.suffix != SUFFIX:
        raise ScenarioError(f"{source}: files of settings are in TOML, and their names end in {SUFFIX}")
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ScenarioError(f"{source}: {error.strerror}") from error
    if len(content) > _MAX_BYTES:
        raise ScenarioError(f"{source}: longer than 1 MiB, the limit of a settings file")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{source}: not UTF-8 text (byte {error.start})") from error
    return parse_toml(text, source)


def parse_toml(text: str, source: str) -> Document:
    """Parse TOML.

    Raises:
        ScenarioError: the text is not TOML.
    """
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScenarioError(f"{source}: not TOML: {_first_words(error)}") from error
    _check_plain(tree, source)
    return Document(source, tree, _toml_lines(text))


def parse_value(text: str, source: str) -> Any:  # noqa: ANN401
    """Parse a value of the command line: `64`, `true`, `[64, imix]`, `testpmd`. It is TOML without quotes around texts; `null` unsets.

    Raises:
        ScenarioError: the value is invalid.
    """
    text = text.strip()
    if text in ("", "null"):
        return None
    try:
        # A second line could contain a second key.
        tree = tomllib.loads(f"value = {text}") if "\n" not in text else {}
    except (ValueError, RecursionError):
        tree = {}
    if "value" in tree:
        _check_plain(tree["value"], source)
        return tree["value"]
    if _BARE_TEXT.fullmatch(text):
        return text
    if found := _BARE_LIST.fullmatch(text):
        return [parse_value(item, source) for item in _LIST_ITEM.findall(found[1])]
    raise ScenarioError(
        f"{source}: invalid value {text!r}: write a text, 64, true, [64, imix] or {{name = 1}}; quote a text with brackets or quotes"
    )


def _first_words(error: Exception) -> str:
    """Return the message of a parser, without its advice to programmers."""
    return str(error).partition("\n")[0].partition("; ")[0]


def _check_plain(tree: Any, source: str) -> None:  # noqa: ANN401
    """Reject values that are not settings.

    Raises:
        ScenarioError: with the key and the value.
    """

    def check(value: Any, path: KeyPath) -> None:  # noqa: ANN401
        where = f"{source}: {path_text(path)}: " if path else f"{source}: "
        if len(path) > _MAX_DEPTH:
            raise ScenarioError(f"{source}: {path_text(path[:3])}: tables and lists are nested more than {_MAX_DEPTH} deep")
        if isinstance(value, dict):
            for key, item in value.items():
                check(item, (*path, key))
        elif isinstance(value, list):
            for number, item in enumerate(value):
                check(item, (*path, str(number)))
        elif isinstance(value, float) and not math.isfinite(value):
            raise ScenarioError(f"{where}{value} is not a finite number")
        elif not isinstance(value, str | bool | int | float):
            raise ScenarioError(
                f"{where}{_kind(value)} is not a valid setting: use a quoted text, a number, true, false, a list or a table"
            )

    check(tree, ())


def _kind(value: object) -> str:
    names: dict[type, str] = {dict: "a table", list: "a list", str: "a text"}
    return names.get(type(value), f"a {type(value).__name__}")


def _toml_lines(text: str) -> dict[KeyPath, int]:
    """Find the lines of keys, which tomllib does not report. A match inside a multi-line text is harmless."""
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
