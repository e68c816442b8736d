"""Finds Ringroad's own programs."""

from __future__ import annotations

import os

from ringroad_lab.host.interface import Host
from ringroad_lab.package_names import OWN_PACKAGE


def require_ringroad(host: Host, program: str) -> str:
    """Return the path of one of Ringroad's programs: in the folder `$RINGROAD_BIN_DIR`, else in PATH.

    Raises:
        MissingProgramError: the program does not exist.
    """
    folder = os.environ.get("RINGROAD_BIN_DIR")
    return host.require(f"{folder}/{program}" if folder else program, OWN_PACKAGE)
