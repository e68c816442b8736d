"""Problems of settings, reported together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ringroad_lab.errors import ScenarioError
from ringroad_lab.scenario.document import KeyPath, path_text
from ringroad_lab.scenario.layers import Merged
from ringroad_lab.scenario.near_miss import suggest

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Problem:
    """A wrong setting."""

    path: KeyPath
    text: str


def raise_problems(name: str, problems: Sequence[Problem], merged: Merged) -> None:
    """Report all problems, each with the origin of the setting; return if there are none.

    Raises:
        ScenarioError: there are problems.
    """
    if not problems:
        return
    lines = []
    for problem in dict.fromkeys(problems):
        origin = merged.origin(problem.path) if problem.path else None
        lines.append(f"{path_text(problem.path)}: {problem.text}" + (f" ({origin})" if origin else ""))
    if len(lines) == 1:
        raise ScenarioError(f"scenario {name}: {lines[0]}")
    raise ScenarioError(f"scenario {name}: {len(lines)} problems\n" + "\n".join(f"  {line}" for line in lines))


def validate(type_: type[Model], value: object, path: KeyPath, problems: list[Problem], *, extra_keys: Sequence[str] = ()) -> Model | None:
    """Check a value from files against a type; if it is invalid, add to the problems and return None.

    Numbers and texts are not converted: TOML distinguishes them.
    """
    try:
        return type_.model_validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            if details["type"] == "too_short" and details["input"]:
                # Each of its items is wrong and reported.
                continue
            problems.append(_problem(type_, details, path, extra_keys))
    return None


def _problem(type_: type[BaseModel], details: ErrorDetails, path: KeyPath, extra_keys: Sequence[str]) -> Problem:
    # Pydantic marks a wrong key with `[key]`.
    location = tuple(str(part) for part in details["loc"] if part != "[key]")
    here = (*path, *location)
    given: Any = details["input"]
    match details["type"]:
        case "extra_forbidden":
            allowed = [*_fields(type_, location[:-1]), *extra_keys]
            return Problem(here, f"no such setting{suggest(location[-1], allowed)}")
        case "missing":
            return Problem(here, "is missing")
        case "enum" | "literal_error":
            allowed = [word.strip().strip("'") for word in str(details["ctx"]["expected"]).replace(" or ", ", ").split(",")]
            return Problem(here, f"{given!r} is not one of {', '.join(allowed)}{_did_you_mean(str(given), allowed)}")
        case "value_error":
            return Problem(here, str(details["ctx"]["error"]))
        case "too_short":
            return Problem(here, "needs at least one")
        case "string_type" if isinstance(given, int | float):
            return Problem(here, f"has to be a text, not {given!r}: write it in quotes, as '\"{given}\"'")
        case "string_pattern_mismatch":
            return Problem(here, f"{given!r}: letters, digits and _ . + - are allowed")
        case _:
            message = details["msg"].replace("Input should be", "has to be").replace("valid array", "list").replace("an object", "a table")
            message = (
                message.replace("a valid boolean", "true or false").replace("valid integer", "whole number").replace("valid string", "text")
            )
            message = message.replace("Object", "table")
            shown = "" if isinstance(given, dict | list) else ", and is unset" if given is None else f", not {given!r}"
            return Problem(here, message + shown)


def _did_you_mean(word: str, allowed: Sequence[str]) -> str:
    found = suggest(word, allowed)
    return found if "did you mean" in found else ""


def _fields(type_: type[BaseModel], location: KeyPath) -> list[str]:
    """Return the field names of the model at a location inside another model."""
    model: Any = type_
    for part in location:
        if isinstance(model, type) and issubclass(model, BaseModel):
            field = model.model_fields.get(part)
            model = field.annotation if field else None
        else:
            arguments = [argument for argument in getattr(model, "__args__", ()) if argument is not Ellipsis]
            model = arguments[-1] if arguments else None
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []
