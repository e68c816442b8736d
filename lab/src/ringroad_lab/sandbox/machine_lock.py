"""One run at a time on a machine: two runs would share processors, memory and time, and both would have wrong results."""

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
    """The process that holds the machine."""

    pid: int
    user: str
    started_at: float
    """Seconds since 1970."""
    run_id: str

    def __str__(self) -> str:
        """Describe the process for messages."""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.started_at))
        return f"process {self.pid} of {self.user}, since {since}, run {self.run_id[:8]}"


@contextmanager
def machine_lock(run_id: str) -> Iterator[None]:
    """Hold the machine for a run; the kernel releases the lock when this process ends, in whatever way.

    The lock is on the file that `$RINGROAD_LAB_LOCK` names, else on one in /run/lock: containers that share no processors use one each.
    The parent process can take the lock, and pass it on as the descriptor in `$RINGROAD_LAB_LOCK_FD`.

    Raises:
        MachineBusyError: another run holds the lock; the message names the run.
        SandboxError: the file cannot be created.
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
    """Take the machine's lock for a run, as `machine_lock`; return its descriptor. The lock is held until the last process closes it.

    Raises:
        MachineBusyError: another run holds the lock; the message names the run.
        SandboxError: the file cannot be created.
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
    """Return the process that holds the machine; None if the machine is free.

    Raises:
        SandboxError: the lock cannot be read, or its holder has not written its name yet.
    """
    descriptor = _open()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _read_holder(descriptor)
        if holder is None:
            raise SandboxError("another run has just started on this machine") from None
        return holder
    finally:
        os.close(descriptor)
    return None


def _open() -> int:
    path = _path()
    try:
        # O_NOFOLLOW: a link could name another file.
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise SandboxError(f"the machine's lock {path} cannot be opened: {error.strerror}; {LOCK_VARIABLE} names another file") from error


def _path() -> Path:
    return Path(os.environ.get(LOCK_VARIABLE) or _LOCK)


def _inherited() -> int | None:
    """Return the inherited lock; programs that this process starts do not inherit it."""
    text = os.environ.pop(LOCK_DESCRIPTOR_VARIABLE, "")
    if not text:
        return None
    try:
        descriptor = int(text)
        is_lock = os.path.samestat(os.fstat(descriptor), os.stat(_path()))
        if is_lock:
            os.set_inheritable(descriptor, False)
            # The lock is held already, unless the variable is wrong.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ValueError, OSError) as error:
        raise SandboxError(f"${LOCK_DESCRIPTOR_VARIABLE} is {text!r}, which is not the machine's lock: {error}") from error
    if not is_lock:
        raise SandboxError(f"${LOCK_DESCRIPTOR_VARIABLE} is {text!r}, which is not the machine's lock {_path()}")
    return descriptor


def write_holder(descriptor: int, run_id: str) -> None:
    """Write the holder of a lock that was taken: this process, for a run."""
    holder = json.dumps(asdict(Holder(os.getpid(), _user(), time.time(), run_id))).encode()
    # The length is always the same, in one write: readers see the previous holder or this one.
    os.pwrite(descriptor, holder.ljust(_HOLDER_BYTES), 0)


def _read_holder(descriptor: int) -> Holder | None:
    try:
        return Holder(**json.loads(os.pread(descriptor, _HOLDER_BYTES, 0)))
    except (ValueError, TypeError):
        # The holder has the lock, but has not written its name yet.
        return None


def _busy(descriptor: int, run_id: str) -> MachineBusyError:
    holder = _read_holder(descriptor)
    if holder is None:
        return MachineBusyError("another run has just started on this machine: wait for its end")
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
