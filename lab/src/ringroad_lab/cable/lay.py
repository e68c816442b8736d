"""Laying cables of any kind and taking them away."""

from __future__ import annotations

from ringroad_lab.cable.interface import Cable, Laying
from ringroad_lab.errors import HostError, SandboxError
from ringroad_lab.host.interface import Host
from ringroad_lab.kinds import CABLES

NAME_LIMIT = 8


def lay_cable(laying: Laying) -> Cable:
    """Lay a cable on the device's host.

    Raises:
        SandboxError: an interface could not be made or set.
        MissingProgramError: a program for it is not there.
    """
    if not 1 <= len(laying.name) <= NAME_LIMIT:
        raise ValueError(f"name of a cable {laying.name!r}: 1 to {NAME_LIMIT} characters")
    try:
        return CABLES[laying.kind]().lay(laying)
    except HostError as error:
        raise SandboxError(f"cable {laying.name} ({laying.kind}): {error}") from error


def remove_cable(cable: Cable, host: Host) -> None:
    """Take away what was made for a cable; possible any number of times, and after the device took its end with it."""
    CABLES[cable.kind]().remove(cable, host)
