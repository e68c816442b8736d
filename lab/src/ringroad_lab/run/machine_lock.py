"""One run at a time on a machine: two would take processors, memory and time from each other, and neither's figures would be right."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ringroad_lab.errors import MachineBusyError, SandboxError

LOCK_VARIABLE = "RINGROAD_LAB_LOCK"
_LOCK = Path("/run/lock/ringroad-lab")


@dataclass(frozen=True)
class Holder:
    """Who measures on the machine."""

    pid: int
    user: str
    started_at: float
    """Seconds since 1970."""
    run_id: str

    def __str__(self) -> str:
        """Name it for people."""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.started_at))
        return f"process {self.pid} of {self.user}, since {since}, run {self.run_id[:8]}"


@contextmanager
def machine_lock(run_id: str) -> Iterator[None]:
    """Hold the machine for a run; the kernel lets it go with this process, however that ends.

    The lock is on the file that `$RINGROAD_LAB_LOCK` names, else on one in /run/lock: containers that share no processors have one each.

    Raises:
        MachineBusyError: another run has it; it is named.
        SandboxError: the file cannot be made.
    """
    path = Path(os.environ.get(LOCK_VARIABLE) or _LOCK)
    try:
        # Nobody else's file, even if somebody made a link of that name.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise SandboxError(f"the machine's lock {path} cannot be opened: {error.strerror}; {LOCK_VARIABLE} names another file") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _busy(descriptor, run_id) from None
        holder = Holder(os.getpid(), _user(), time.time(), run_id)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(holder)).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _busy(descriptor: int, run_id: str) -> MachineBusyError:
    try:
        holder = Holder(**json.loads(os.pread(descriptor, 4096, 0)))
    except (ValueError, TypeError):
        # It has the lock, and is about to write who it is.
        return MachineBusyError("another run has just begun on this machine: wait for its end")
    if holder.run_id == run_id:
        return MachineBusyError(
            f"run {run_id[:8]} is under way ({holder}): wait for its end, or stop it with Ctrl-C or `kill {holder.pid}`"
        )
    return MachineBusyError(f"another run measures on this machine ({holder}): wait for its end, or stop it with `kill {holder.pid}`")


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
