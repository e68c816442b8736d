"""Keepers: processes that change a setting of the machine for the duration of a run, and undo the change.

A keeper's input ends with the process that started the keeper, even if that process is killed. Then the keeper undoes its changes and
exits.
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
    """Run a keeper, whose program is a module of this package, until the block or this process ends.

    Yields the line that the keeper prints when its work is done, empty if it ended without a line, None on timeout; and its input.
    """
    argv = [sys.executable, "-P", "-m", module, *args]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        try:
            is_readable, _, _ = select.select([process.stdout], [], [], timeout_s)
            yield (process.stdout.readline().strip() if is_readable else None), process.stdin
        finally:
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.wait()


def be_keeper() -> None:
    """Make this process a keeper, which ends with its input. A signal to all processes of the user must not end it earlier."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
