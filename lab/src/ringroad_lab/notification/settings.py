"""Settings of notifications in TOML. They contain no secrets, but name the files or environment variables that do."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ringroad_lab.errors import ScenarioError, value_problems
from ringroad_lab.notification.interface import NOTIFIERS, Notifier
from ringroad_lab.scenario.near_miss import suggest

FILE_NAME = "notifications.toml"
MAX_TARGETS = 50
"""Maximum number of recipients: sending uses a thread for each of them."""
_MAX_BYTES = 1 << 20


def read_notifications(path: Path) -> tuple[Notifier, ...]:
    """Read a file of settings.

    Raises:
        ScenarioError: the file cannot be read, or is invalid.
        PluginError: a package that adds a kind is broken.
    """
    try:
        with path.open("rb") as file:
            tree = tomllib.loads(file.read(_MAX_BYTES).decode())
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ScenarioError(f"{path}: invalid TOML: {error}") from error
    found: list[Notifier] = []
    problems: list[str] = []
    for kind, tables in tree.items():
        if kind not in NOTIFIERS:
            problems.append(f"{kind}: unknown kind of notification{suggest(kind, NOTIFIERS)}")
        elif not isinstance(tables, list):
            problems.append(f"{kind}: must be tables, as [[{kind}]]")
        else:
            try:
                found += [*TypeAdapter(tuple[NOTIFIERS[kind], ...]).validate_python(tables)]  # type: ignore[valid-type]
            except ValidationError as error:
                problems += [f"{kind}.{problem}" for problem in value_problems(error)]
    if len(found) > MAX_TARGETS:
        problems.append(f"{len(found)} recipients, more than {MAX_TARGETS}")
    if problems:
        raise ScenarioError(f"{path}: {'; '.join(problems)}")
    return tuple(found)
