"""`fleet.toml`: the sources of messages about builds, the rules for these messages, the beds, and the engines.

The file names where secrets are, and contains none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from ringroad_lab.errors import ScenarioError
from ringroad_lab.fleet.engine.interface import ENGINES
from ringroad_lab.fleet.inventory import BedSettings
from ringroad_lab.fleet.rules import MessageRule
from ringroad_lab.fleet.sources.interface import SOURCES, Source
from ringroad_lab.scenario.document import KeyPath, path_text, read_document
from ringroad_lab.scenario.library import Library, settings_folder
from ringroad_lab.scenario.near_miss import suggest
from ringroad_lab.scenario.problem import Problem, validate
from ringroad_lab.text_types import Name
from ringroad_lab.trial import Frozen

FILE_NAME = "fleet.toml"
_SECTIONS = ("source", "rule", "engine", "bed")
_MAX_TABLES = 1000
T = TypeVar("T", bound=Frozen)


@dataclass(frozen=True)
class FleetSettings:
    """Sources, engines and beds by name, and rules in their order."""

    sources: Mapping[str, Source]
    rules: Sequence[MessageRule]
    engines: Mapping[str, Frozen]
    """Settings of the engines in the file."""
    beds: Mapping[str, BedSettings]


def default_file() -> Path:
    """Return the path of the file in the settings folder."""
    return settings_folder(os.environ) / FILE_NAME


def load_fleet(file: Path | None) -> FleetSettings:
    """Return the settings of a file; by default of the usual file, if that exists.

    Raises:
        ScenarioError: the file is invalid; all problems are reported together.
    """
    if file is None and not default_file().exists():
        return FleetSettings({}, (), {}, {})
    return read_fleet(file or default_file())


def read_fleet(path: Path) -> FleetSettings:
    """Read a file.

    Raises:
        ScenarioError: the file is invalid; all problems are reported together, each with its line.
    """
    document = read_document(path)
    problems: list[Problem] = []
    for key in document.tree:
        if key not in _SECTIONS:
            problems.append(Problem((key,), f"no such setting{suggest(key, _SECTIONS)}"))
    sources = _named(document.tree, "source", _source, problems)
    engines = _named(document.tree, "engine", _engine, problems)
    beds = _named(document.tree, "bed", partial(validate, BedSettings), problems)
    rules = _rules(document.tree.get("rule", []), problems)
    if problems:
        lines = []
        for problem in dict.fromkeys(problems):
            line = _line(document.lines, problem.path)
            lines.append(f"{path_text(problem.path)}: {problem.text}" + (f" (line {line})" if line else ""))
        raise ScenarioError(f"{document.source}: " + (lines[0] if len(lines) == 1 else "\n  ".join([f"{len(lines)} problems", *lines])))
    return FleetSettings(sources, rules, engines, beds)


def _named(
    tree: Mapping[str, Any], section: str, read: Callable[[Any, KeyPath, list[Problem]], T | None], problems: list[Problem]
) -> dict[str, T]:
    """Read the tables `[section.NAME]`."""
    tables = tree.get(section, {})
    found: dict[str, T] = {}
    if not isinstance(tables, dict):
        problems.append(Problem((section,), f"must be tables, as [{section}.NAME]"))
        return found
    if len(tables) > _MAX_TABLES:
        problems.append(Problem((section,), f"has {len(tables)} tables, more than {_MAX_TABLES}"))
        return found
    for name, table in tables.items():
        here: KeyPath = (section, name)
        try:
            TypeAdapter(Name).validate_python(name)
        except ValidationError:
            problems.append(Problem(here, "invalid name: use up to 64 letters, digits and . _ -"))
            continue
        if (value := read(table, here, problems)) is not None:
            found[name] = value
    return found


def _source(table: Any, here: KeyPath, problems: list[Problem]) -> Source | None:  # noqa: ANN401
    kind = str(table.get("kind", "")) if isinstance(table, dict) else ""
    if kind not in SOURCES:
        problems.append(Problem((*here, "kind"), (f"'{kind}' is not a kind of source" if kind else "is missing") + suggest(kind, SOURCES)))
        return None
    return validate(SOURCES[kind], {name: value for name, value in table.items() if name != "kind"}, here, problems)


def _engine(table: Any, here: KeyPath, problems: list[Problem]) -> Frozen | None:  # noqa: ANN401
    name = str(here[-1])
    if name not in ENGINES:
        problems.append(Problem(here, f"there is no engine '{name}'{suggest(name, ENGINES)}"))
        return None
    return validate(ENGINES[name].settings_type, table, here, problems)


def _rules(tables: Any, problems: list[Problem]) -> tuple[MessageRule, ...]:  # noqa: ANN401
    if not isinstance(tables, list):
        problems.append(Problem(("rule",), "must be tables, as [[rule]]"))
        return ()
    rules, library = [], Library.of_this_machine()
    for number, table in enumerate(tables, 1):
        here: KeyPath = (f"rule {table.get('name', number)}" if isinstance(table, dict) else f"rule {number}",)
        rule = validate(MessageRule, table, here, problems)
        if rule is None:
            continue
        rules.append(rule)
        try:
            library.scenario(rule.scenario)
            for layer in rule.layers:
                library.user_layer(layer)
        except ScenarioError as error:
            problems.append(Problem(here, str(error)))
    return tuple(rules)


def _line(lines: Mapping[KeyPath, int], path: KeyPath) -> int | None:
    """Return the line of a key, of the first key below it, or else of the table that lacks the key."""
    below = [line for key, line in lines.items() if key[: len(path)] == path]
    return min(below) if below else lines.get(path[:-1])
