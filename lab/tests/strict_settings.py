"""Settings of methods in the profile that is as strict to the RFCs as each method allows."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from ringroad_lab.method.interface import METHODS, Method, MethodSettings
from ringroad_lab.scenario.library import Library

M = TypeVar("M", bound=MethodSettings)


def strict_settings(name: str, type_: type[M]) -> M:
    """Return the settings of a method in the profile `rfc2544`."""
    assert METHODS[name].settings_type is type_
    profile = Library(Path("/nonexistent"), "here").user_layer("rfc2544")
    return type_.model_validate(profile.document.tree["method"].get(name, {}))


def strict_method(name: str) -> Method:
    """Return a method with its settings in the profile `rfc2544`."""
    method = METHODS[name]
    return method(strict_settings(name, method.settings_type))
