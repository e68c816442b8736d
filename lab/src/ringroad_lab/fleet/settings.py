"""`fleet.toml`: where messages about builds come from, and the rules of what they come to. It names where secrets are, and holds none."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import TypeAdapter, ValidationError, model_validator

from ringroad_lab.errors import ScenarioError
from ringroad_lab.fleet.request import Name, Word
from ringroad_lab.fleet.rules import Rule
from ringroad_lab.notification.settings import secret
from ringroad_lab.scenario.document import KeyPath, path_text, read_document
from ringroad_lab.scenario.library import Library, settings_folder
from ringroad_lab.scenario.near_miss import suggest
from ringroad_lab.scenario.problem import Problem, validate
from ringroad_lab.trial import Frozen

FILE_NAME = "fleet.toml"
_HTTP_KINDS = ("github", "gitlab", "gitea", "generic")
T = TypeVar("T")


class HttpSource(Frozen):
    """A build system that sends its messages to `/hooks/NAME` of `ringroad-lab serve`."""

    kind: Literal["github", "gitlab", "gitea", "generic"]
    secret_file: Path | None = None
    secret_env: Word | None = None
    """Where the secret is by which its messages are known."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.secret_file is None) is (self.secret_env is None):
            raise ValueError("give one of secret_file and secret_env")
        return self

    def secret(self, name: str) -> str:
        """Return the secret.

        Raises:
            ScenarioError: it is not there.
        """
        return secret(f"source '{name}'", self.secret_file, self.secret_env) or ""


class FolderSource(Frozen):
    """A folder into which packages are put."""

    kind: Literal["folder"]
    folder: Path

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.folder.is_absolute():
            raise ValueError(f"'{self.folder}' is no absolute path: begin it with /")
        return self


Source = HttpSource | FolderSource
_MODELS: Mapping[str, type[HttpSource | FolderSource]] = {**dict.fromkeys(_HTTP_KINDS, HttpSource), "folder": FolderSource}


@dataclass(frozen=True)
class FleetSettings:
    """Sources by name, and rules in their order."""

    sources: Mapping[str, Source]
    rules: Sequence[Rule]

    def of_type(self, kind: type[T]) -> dict[str, T]:
        """Return the sources of one kind."""
        return {name: source for name, source in self.sources.items() if isinstance(source, kind)}


def default_file() -> Path:
    """Return the file in the folder of settings."""
    return settings_folder(os.environ) / FILE_NAME


def load_fleet(file: Path | None) -> FleetSettings:
    """Return the settings of a file; of the usual one unless another is named, where there is one.

    Raises:
        ScenarioError: it is not right; all problems together.
    """
    if file is None and not default_file().exists():
        return FleetSettings({}, ())
    return read_fleet(file or default_file())


def read_fleet(path: Path) -> FleetSettings:
    """Read a file.

    Raises:
        ScenarioError: it is not right; all problems together, each with its line.
    """
    document = read_document(path)
    problems: list[Problem] = []
    for key in document.tree:
        if key not in ("source", "rule"):
            problems.append(Problem((key,), f"no such setting{suggest(key, ('source', 'rule'))}"))
    sources = _sources(document.tree.get("source", {}), problems)
    rules = _rules(document.tree.get("rule", []), problems)
    if problems:
        lines = []
        for problem in dict.fromkeys(problems):
            line = _line(document.lines, problem.path)
            lines.append(f"{path_text(problem.path)}: {problem.text}" + (f" (line {line})" if line else ""))
        raise ScenarioError(f"{document.source}: " + (lines[0] if len(lines) == 1 else "\n  ".join([f"{len(lines)} problems", *lines])))
    return FleetSettings(sources, rules)


def _sources(tables: Any, problems: list[Problem]) -> dict[str, Source]:  # noqa: ANN401
    sources: dict[str, Source] = {}
    if not isinstance(tables, dict):
        problems.append(Problem(("source",), "has to be tables, as [source.NAME]"))
        return sources
    for name, table in tables.items():
        here: KeyPath = ("source", name)
        try:
            TypeAdapter(Name).validate_python(name)
        except ValidationError:
            problems.append(Problem(here, "a source's name has up to 64 letters, digits and . _ -"))
        kind = str(table.get("kind", "")) if isinstance(table, dict) else ""
        if kind not in _MODELS:
            problems.append(Problem((*here, "kind"), (f"'{kind}' is no kind of source" if kind else "is missing") + suggest(kind, _MODELS)))
        elif (source := validate(_MODELS[kind], table, here, problems)) is not None:
            sources[name] = source
    return sources


def _rules(tables: Any, problems: list[Problem]) -> tuple[Rule, ...]:  # noqa: ANN401
    if not isinstance(tables, list):
        problems.append(Problem(("rule",), "has to be tables, as [[rule]]"))
        return ()
    rules, library = [], Library.of_this_machine()
    for number, table in enumerate(tables, 1):
        here: KeyPath = (f"rule {table.get('name', number)}" if isinstance(table, dict) else f"rule {number}",)
        rule = validate(Rule, table, here, problems)
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
    """Where a key stands, or the first one below it, else the table that lacks it."""
    below = [line for key, line in lines.items() if key[: len(path)] == path]
    return min(below) if below else lines.get(path[:-1])
