"""Applies rules to messages about builds: pure functions of rules and message."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError, field_validator

from ringroad_lab.errors import value_problems
from ringroad_lab.request.message import Message, MessageError, field, read_payload
from ringroad_lab.request.model import ANY_BED, Order, Wanted
from ringroad_lab.scenario.toml_text import toml_text
from ringroad_lab.text_types import Name, Word
from ringroad_lab.trial import Frozen

Scalar = str | bool | int | float
_FIELD = re.compile(r"\{([^{}]*)\}")
_GLOB = "glob"


def _check_template(text: str) -> str:
    rest = _FIELD.sub(lambda found: "" if found[1].strip() else "{", text)
    if "{" in rest or "}" in rest:
        raise ValueError(f"'{text}': write a field of the message in braces, as {{repository.name}}; braces have no other meaning")
    return text


_Template = Annotated[Word, AfterValidator(_check_template)]


def _templates(value: Any) -> list[str]:  # noqa: ANN401
    if isinstance(value, Mapping):
        return [text for each in value.values() for text in _templates(each)]
    if isinstance(value, list | tuple):
        return [text for each in value for text in _templates(each)]
    return [value] if isinstance(value, str) else []


def _commands(value: Any, key: str = "") -> list[str]:  # noqa: ANN401
    """Return the texts of settings that a shell runs."""
    if isinstance(value, Mapping):
        return [text for name, each in value.items() for text in _commands(each, name)]
    if isinstance(value, list | tuple):
        return [text for each in value for text in _commands(each, key)]
    return [value] if isinstance(value, str) and key.rpartition(".")[2] in ("recipe", "run") else []


class MessageRule(Frozen):
    """A rule: which messages match, and what is measured for each. Its texts can contain fields of the message in braces."""

    name: Annotated[Word, Field(min_length=1)]
    source: Word = "*"
    """A glob of the names of sources."""
    match: Annotated[dict[str, Any], Field(max_length=50)] = {}
    """Required value by dotted path of a field: a value, one of a list, or `{glob = "..."}`. All must match."""
    build: Annotated[_Template, Field(min_length=1)]
    scenario: Annotated[Word, Field(min_length=1)]
    layers: Annotated[tuple[Word, ...], Field(max_length=20)] = ()
    settings: dict[str, Any] = {}
    labels: Annotated[dict[str, Word], Field(max_length=50)] = {}
    baseline: _Template = ""
    bed_class: Name = ANY_BED
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    owner: _Template = ""
    package: _Template = ""
    """Package whose newest build of the tag supersedes older ones; empty: none is superseded."""
    tag: _Template = ""
    built_at: Word = ""
    """Path of the field with the time of the build; if not given, the arrival of the message counts."""

    @field_validator("settings", "labels")
    @classmethod
    def _check_texts(cls, values: dict[str, Any]) -> dict[str, Any]:
        for text in _templates(values):
            _check_template(text)
        if any(_FIELD.search(text) for text in _commands(values)):
            raise ValueError(
                "the shell executes a recipe or a test step's run, so a message's field in it could inject commands: "
                "pass the field to a recipe as a variable, in build.git.environment"
            )
        return values

    @field_validator("match")
    @classmethod
    def _check_match(cls, tree: dict[str, Any]) -> dict[str, Any]:
        conditions(tree)
        return tree


@dataclass(frozen=True)
class Condition:
    """The required value of a field."""

    path: str
    values: tuple[Scalar, ...]
    """The allowed values."""
    is_glob: bool = False

    def holds(self, value: object) -> bool:
        """Return whether a field value, or a missing field, matches. Numbers, booleans and texts never equal each other."""
        if self.is_glob:
            return isinstance(value, str) and any(fnmatchcase(value, str(each)) for each in self.values)
        return any(type(each) is type(value) and each == value for each in self.values) or (
            _is_number(value) and any(_is_number(each) and each == value for each in self.values)
        )


def conditions(tree: Mapping[str, Any], above: str = "") -> list[Condition]:
    """Return the conditions of a table: `action = "published"`, `repository.name = {glob = "ovs*"}`, `ref = ["a", "b"]`.

    Raises:
        ValueError: the table has another form.
    """
    found: list[Condition] = []
    for key, value in tree.items():
        path = f"{above}.{key}" if above else key
        if isinstance(value, Mapping) and _GLOB in value:
            globs = value[_GLOB] if isinstance(value[_GLOB], list) else [value[_GLOB]]
            if len(value) > 1 or not globs or not all(isinstance(each, str) for each in globs):
                raise ValueError(f'{path}: write {{glob = "text*"}} or {{glob = ["one*", "other*"]}}, without other keys')
            found.append(Condition(path, tuple(globs), is_glob=True))
        elif isinstance(value, Mapping) and value:
            found += conditions(value, path)
        elif isinstance(value, list) and value and all(isinstance(each, str | bool | int | float) for each in value):
            found.append(Condition(path, tuple(value)))
        elif isinstance(value, str | bool | int | float):
            found.append(Condition(path, (value,)))
        else:
            raise ValueError(f'{path}: write a value, a list of values, or {{glob = "text*"}}')
    return found


def apply_rules(rules: Sequence[MessageRule], message: Message) -> list[Wanted]:
    """Return the measurements that all matching rules request; if two request the same, the first counts.

    Raises:
        MessageError: the message is not JSON, or a matching rule cannot use its fields.
    """
    tree = read_payload(message.payload)
    found: dict[tuple[str, str, str], Wanted] = {}
    for rule in rules:
        if fnmatchcase(message.source, rule.source) and _matches(rule, tree, message):
            wanted = _make(rule, tree, message)
            found.setdefault((wanted.build, wanted.scenario, wanted.bed_class), wanted)
    return list(found.values())


def _matches(rule: MessageRule, tree: Mapping[str, Any], message: Message) -> bool:
    return all(each.holds(field(tree, message, each.path)) for each in conditions(rule.match))


def _make(rule: MessageRule, tree: Mapping[str, Any], message: Message) -> Wanted:
    def fill(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, str):
            return _FIELD.sub(lambda found: _text_of(rule, tree, message, found[1].strip()), value)
        if isinstance(value, Mapping):
            return {key: fill(each) for key, each in value.items()}
        return [fill(each) for each in value] if isinstance(value, list | tuple) else value

    try:
        order = Order(
            layers=rule.layers,
            # Written as TOML, so that the content of a field stays one text and cannot add a setting.
            settings=tuple(toml_text(fill(rule.settings)).splitlines()),
            labels=fill(rule.labels),
            baseline=fill(rule.baseline),
        )
        return Wanted(
            build=fill(rule.build),
            scenario=rule.scenario,
            bed_class=rule.bed_class,
            order=order,
            priority=rule.priority,
            owner=fill(rule.owner),
            package=fill(rule.package),
            tag=fill(rule.tag),
            built_at=_moment(rule, field(tree, message, rule.built_at)) if rule.built_at else message.received_at,
        )
    except ValidationError as error:
        raise MessageError(f"rule '{rule.name}': {'; '.join(value_problems(error))}") from error


def _text_of(rule: MessageRule, tree: Mapping[str, Any], message: Message, path: str) -> str:
    value = field(tree, message, path)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise MessageError(f"rule '{rule.name}' needs the field {path}, which is {'missing' if value is None else 'not a text'} in the message")


def _moment(rule: MessageRule, value: object) -> float:
    try:
        if _is_number(value):
            return float(value)  # type: ignore[arg-type]
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        pass
    raise MessageError(f"rule '{rule.name}': the field {rule.built_at} is not a time: write seconds since 1970, or as 2026-11-25T16:30:00Z")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
