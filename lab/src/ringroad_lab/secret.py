"""Secrets, which settings name by a file or an environment variable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ringroad_lab.errors import ScenarioError


def secret(what: str, file: Path | None, variable: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return a secret from a file's first line, or from the environment; None if neither is named.

    Raises:
        ScenarioError: the secret is missing.
    """
    if file is not None:
        try:
            text = file.expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ScenarioError(f"{what}: {file} cannot be read: {why}") from error
        found = text.splitlines()[0].strip() if text.strip() else ""
        where = str(file)
    elif variable is not None:
        found, where = environment.get(variable, ""), f"${variable}"
    else:
        return None
    if not found:
        raise ScenarioError(f"{what}: {where} is empty")
    return found
