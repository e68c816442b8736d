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
LOCK_DESCRIPTOR_VARIABLE = "RINGROAD_LAB_LOCK_FD"
_LOCK = Path("/run/lock/ringroad-lab")
_HOLDER_BYTES = 1024


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
    Who started this process may have taken it already, and handed it on as the descriptor that `$RINGROAD_LAB_LOCK_FD` names.

    Raises:
        MachineBusyError: another run has it; it is named.
        SandboxError: the file cannot be made.
    """
    inherited = _inherited()
    descriptor = take_machine(run_id) if inherited is None else inherited
    try:
        if inherited is not None:
            write_holder(descriptor, run_id)
        yield
    finally:
        os.close(descriptor)


def take_machine(run_id: str) -> int:
    """Take the machine's lock for a run, as `machine_lock`; return a descriptor. All who inherit it hold the lock until the last closes it.

    Raises:
        MachineBusyError: another run has it; it is named.
        SandboxError: the file cannot be made.
    """
    descriptor = _open()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write_holder(descriptor, run_id)
    except BlockingIOError:
        busy = _busy(descriptor, run_id)
        os.close(descriptor)
        raise busy from None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def machine_holder() -> Holder | None:
    """Return who measures on the machine; None where nobody does.

    Raises:
        SandboxError: the lock cannot be looked at, or its holder is about to write who it is.
    """
    descriptor = _open()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _read_holder(descriptor)
        if holder is None:
            raise SandboxError("another run has just begun on this machine") from None
        return holder
    finally:
        os.close(descriptor)
    return None


def _open() -> int:
    path = _path()
    try:
        # Nobody else's file, even if somebody made a link of that name.
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise SandboxError(f"the machine's lock {path} cannot be opened: {error.strerror}; {LOCK_VARIABLE} names another file") from error


def _path() -> Path:
    return Path(os.environ.get(LOCK_VARIABLE) or _LOCK)


def _inherited() -> int | None:
    """The lock as it was handed on; programs that are started from here do not get it."""
    text = os.environ.pop(LOCK_DESCRIPTOR_VARIABLE, "")
    if not text:
        return None
    try:
        descriptor = int(text)
        is_lock = os.path.samestat(os.fstat(descriptor), os.stat(_path()))
        if is_lock:
            os.set_inheritable(descriptor, False)
            # It is held already, unless who said so was wrong.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ValueError, OSError) as error:
        raise SandboxError(f"${LOCK_DESCRIPTOR_VARIABLE} is {text!r}, which is not the machine's lock: {error}") from error
    if not is_lock:
        raise SandboxError(f"${LOCK_DESCRIPTOR_VARIABLE} is {text!r}, which is not the machine's lock {_path()}")
    return descriptor


def write_holder(descriptor: int, run_id: str) -> None:
    """Write down who holds a lock that was taken: this process, for a run."""
    holder = json.dumps(asdict(Holder(os.getpid(), _user(), time.time(), run_id))).encode()
    # As long as any other, and in one piece: readers see the one before or this one.
    os.pwrite(descriptor, holder.ljust(_HOLDER_BYTES), 0)


def _read_holder(descriptor: int) -> Holder | None:
    try:
        return Holder(**json.loads(os.pread(descriptor, _HOLDER_BYTES, 0)))
    except (ValueError, TypeError):
        # It has the lock, and is about to write who it is.
        return None


def _busy(descriptor: int, run_id: str) -> MachineBusyError:
    holder = _read_holder(descriptor)
    if holder is None:
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
