"""Keepers: processes that change something of the machine for the length of a run, and undo it.

A keeper's input ends with the process that asked for it, also where that is killed. Then it undoes what it did, and ends.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO


@contextmanager
def keeper(module: str, args: Sequence[str], timeout_s: float) -> Iterator[tuple[str | None, IO[str]]]:
    """Keep a keeper, whose program is a module of this package, until the end of the block or of this process.

    Gives the line that it says when its work is done, empty where it ended without one, None where the time ran out; and its input.
    """
    argv = [sys.executable, "-P", "-m", module, *args]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        try:
            is_heard, _, _ = select.select([process.stdout], [], [], timeout_s)
            yield (process.stdout.readline().strip() if is_heard else None), process.stdin
        finally:
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()


def be_keeper() -> None:
    """Make this process a keeper: its end is that of its input. A signal to all of the user's processes must not end it before."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
