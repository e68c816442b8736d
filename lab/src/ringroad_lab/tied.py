"""Starts processes that end with the lab, also if the lab is killed."""

from __future__ import annotations

import os
from collections.abc import Sequence


def tied(argv: Sequence[str]) -> list[str]:
    """Return a command that runs `argv` as a process that the kernel kills when the thread that started it ends.

    Each step executes the next one in its place, so the process keeps its PID.
    """
    # The kernel does not notify `setpriv` of a parent that has ended already: the second step checks for the parent.
    return ["setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', str(os.getpid()), *argv]
