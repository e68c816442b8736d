"""Writes settings as TOML, one per line, so that the output can be used as a file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ringroad_lab.scenario.document import KeyPath

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(tree: Mapping[str, Any], comment: Callable[[KeyPath], str] | None = None) -> str:
    """Write a tree with a dotted key in each line, and a comment after it if there is one."""
    entries = [(path, _line(path, value)) for path, value in _leaves(tree, ())]
    if comment is None:
        return "".join(f"{text}\n" for _, text in entries)
    width = min(60, max((len(text) for _, text in entries), default=0))
    return "".join(f"{text:<{width}}  # {comment(path)}\n" for path, text in entries)


def _leaves(tree: Mapping[str, Any], path: KeyPath) -> list[tuple[KeyPath, Any]]:
    found: list[tuple[KeyPath, Any]] = []
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            found += _leaves(value, (*path, key))
        else:
            found.append(((*path, key), value))
    return found


def _line(path: KeyPath, value: Any) -> str:  # noqa: ANN401
    key = ".".join(part if _BARE.fullmatch(part) else _string(part) for part in path)
    # TOML has no notation for an unset value.
    return f"# {key} is unset" if value is None else f"{key} = {_value(value)}"


def _value(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_string(key)} = {_value(item)}' for key, item in value.items() if item is not None)}}}"
    if isinstance(value, str):
        return _string(value)
    return json.dumps(value)


def _string(text: str) -> str:
    # JSON's escapes are valid in TOML, except for one character that JSON does not escape.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
