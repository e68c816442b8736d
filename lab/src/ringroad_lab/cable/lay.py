"""Lays and removes cables of any kind."""

from __future__ import annotations

from ringroad_lab.cable.interface import CABLES, Cable, Laying
from ringroad_lab.errors import HostError, SandboxError
from ringroad_lab.host.interface import Host

NAME_LIMIT = 8


def lay_cable(laying: Laying) -> Cable:
    """Lay a cable on the device's host.

    Raises:
        SandboxError: an interface could not be created or configured.
        MissingProgramError: a required program is missing.
    """
    if not 1 <= len(laying.name) <= NAME_LIMIT:
        raise ValueError(f"name of a cable {laying.name!r}: 1 to {NAME_LIMIT} characters")
    try:
        return CABLES[laying.kind]().lay(laying)
    except HostError as error:
        raise SandboxError(f"cable {laying.name} ({laying.kind}): {error}") from error


def remove_cable(cable: Cable, host: Host) -> None:
    """Remove a cable. Can be called any number of times, also if the device has already removed its end."""
    CABLES[cable.kind]().remove(cable, host)
