"""Runs a command in private network, mount and process namespaces.

No part of it outlives the process that started it, however that process ends: through `setpriv`, the kernel kills `unshare` with its
parent; through `unshare`, the kernel kills the first process of the namespaces, and with it everything in them. A first process that lost
`unshare` before the kernel knew that notices it when it starts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from ringroad_lab.errors import MissingProgramError, SandboxError
from ringroad_lab.tied import tied

# Environment variable of a sandbox: the descriptor of a /proc that shows all processes of the machine, and the PID there of the process
# that started the sandbox.
OUTSIDE = "RINGROAD_LAB_OUTSIDE"
# Environment variable of a sandbox's first process: the PID of `unshare`, its parent, in that /proc.
PARENT = "RINGROAD_LAB_PARENT"
_NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--propagation", "private", "--")


class Sandbox:
    """A command with pipes to its standard input and output, with or without private namespaces."""

    stdin: IO[str]
    stdout: IO[str]
    """Lines of text; the end of the file is the end of the command."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        """Wrap the process that `start` created."""
        assert popen.stdin is not None
        assert popen.stdout is not None
        self._popen = popen
        self.stdin = popen.stdin
        self.stdout = popen.stdout

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        private: bool = True,
        stderr: IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        enter: Path | None = None,
    ) -> Sandbox:
        """Start `argv`; its standard error goes to the file `stderr`, or to this process's standard error.

        With `enter`, the list of processes of a control group, the command runs in that group.

        The command ends with the calling thread at the latest, so call this from a long-lived thread. A terminal's Ctrl-C does not reach
        the command. In a private sandbox `/run` is a new, empty file system, which also holds temporary files.

        Raises:
            SandboxError: namespaces cannot be created, because the user is not root.
            MissingProgramError: a required program is missing.
        """
        if private and os.geteuid() != 0:
            raise SandboxError("private namespaces, and the interfaces in them, need root: run as root, for example with sudo")
        for program, package in (("setpriv", "util-linux"), ("unshare", "util-linux"), ("mount", "mount"), ("ip", "iproute2")):
            if shutil.which(program) is None:
                raise MissingProgramError(program, package)
        wrapped = [*_NAMESPACES, sys.executable, "-P", "-m", "ringroad_lab.sandbox.first_process"] if private else []
        entering = ["sh", "-c", f'export {PARENT}=$$ && echo $$ >"$0" && exec "$@"', str(enter or os.devnull)]
        outside = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        try:
            popen = subprocess.Popen(
                tied([*entering, *wrapped, *argv]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **(env or {}), OUTSIDE: f"{outside}:{os.getpid()}"},
                text=True,
                encoding="utf-8",
                errors="replace",
                bufsize=1,
                start_new_session=True,
                pass_fds=(outside,),
            )
        finally:
            os.close(outside)
        return cls(popen)

    def kill(self) -> None:
        """Kill it at once; do nothing if it has ended."""
        self._popen.kill()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for its end and return its status; None on timeout. A status above 128 is 128 plus the number of a signal."""
        try:
            status = self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        return status if status >= 0 else 128 - status

    def close(self, timeout_s: float = 10.0) -> int:
        """Close its input, give it time to end, kill the rest, and return its status."""
        with suppress(BrokenPipeError):
            self.stdin.close()
        status = self.wait(timeout_s)
        if status is None:
            self.kill()
            status = self.wait()
        self.stdout.close()
        assert status is not None
        return status
