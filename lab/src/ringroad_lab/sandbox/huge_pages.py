"""Pages of 2 MiB for the length of a run.

The kernel's pool is a number that whoever is root may change. A keeper, a process of its own, raises it by what is missing,
does so again whenever it is asked, waits for the end of its input, and lowers it by as much. Its input ends with the process
that asked, also where that is killed. Lowering by what was added, rather than writing the former number, keeps two runs from
undoing each other's.
"""

from __future__ import annotations

import fcntl
import math
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import SandboxError

PAGE_MIB = 2
# Documentation/admin-guide/mm/hugetlbpage.rst of the kernel.
POOL = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
# The kernel moves other memory out of the way; on a full machine that takes its time.
KEEPER_TIMEOUT_S = 60.0
# What ended a moment ago gives its pages back, or the keeper gets others.
AGAIN_TIMEOUT_S = 20.0
_ADVICE = "end programs that hold huge pages or memory (`grep Huge /proc/meminfo`), or set `huge_pages = false`"


@contextmanager
def huge_pages(mib: int, pool: Path = POOL) -> Iterator[Callable[[], None]]:
    """Have at least `mib` MiB in free pages of 2 MiB, until the end of the block or of this process; gives what asks for them again.

    Raises:
        SandboxError: there is not so much memory, or the pool cannot be changed.
    """
    pages = math.ceil(mib / PAGE_MIB)
    argv = [sys.executable, "-P", "-m", "ringroad_lab.sandbox.huge_pages", str(pages), str(pool)]
    keeper = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    asking = keeper.stdin

    def ask_again() -> None:
        with suppress(BrokenPipeError):
            asking.write("again\n")
            asking.flush()

    with keeper.stdin, keeper.stdout:
        try:
            is_heard, _, _ = select.select([keeper.stdout], [], [], KEEPER_TIMEOUT_S)
            said = keeper.stdout.readline().strip() if is_heard else f"the kernel took more than {KEEPER_TIMEOUT_S:g} s"
            if said != "ready":
                raise SandboxError(f"no {mib} MiB in huge pages: {said or 'their keeper ended'}; {_ADVICE}")
            yield ask_again
        finally:
            with suppress(BrokenPipeError):
                keeper.stdin.close()
            keeper.wait()


def await_huge_pages(mib: int, ask: Callable[[], None], pool: Path = POOL, timeout_s: float = AGAIN_TIMEOUT_S) -> None:
    """Wait until `mib` MiB in pages of 2 MiB are free, and ask for them where they are not.

    Raises:
        SandboxError: so many are missing, and what to do.
    """
    pages = math.ceil(mib / PAGE_MIB)

    def has_pages() -> bool:
        return _available(pool) >= pages

    if has_pages():
        return
    ask()
    if not wait_until(has_pages, timeout_s):
        free, total = _available(pool), _read(pool / "nr_hugepages")
        raise SandboxError(
            f"{pages - free} huge pages of {PAGE_MIB} MiB are missing: {pages} are needed, {free} of {total} are free, and the kernel "
            f"gave no more within {timeout_s:g} s; {_ADVICE}"
        )


def _keep(pages: int, pool: Path) -> str:
    """Raise the pool, say so, wait for the end of the input, lower it; return what went wrong."""
    added = 0
    try:
        with (pool / "nr_hugepages").open("r+", buffering=1) as number:
            try:
                added = _add(pages, pool, number.fileno())
                free = _available(pool)
                if free < pages:
                    return f"the kernel has memory for {free * PAGE_MIB} MiB"
                print("ready", flush=True)
                for _ in sys.stdin:
                    # What cannot be had is told by who waits for it.
                    added += _add(pages, pool, number.fileno())
            finally:
                if added:
                    fcntl.flock(number.fileno(), fcntl.LOCK_EX)
                    (pool / "nr_hugepages").write_text(str(max(0, _persistent(pool) - added)))
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def _add(pages: int, pool: Path, lock: int) -> int:
    # Only keepers heed the lock. It keeps two of them from reading one number and writing two.
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        before = _persistent(pool)
        missing = pages - _available(pool)
        if missing <= 0:
            return 0
        # Raising the number first turns surplus pages, which somebody still uses, into persistent ones.
        (pool / "nr_hugepages").write_text(str(before + _read(pool / "surplus_hugepages") + missing))
        return max(0, _persistent(pool) - before)
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)


def _available(pool: Path) -> int:
    """Pages that are free, and that nobody has mapped without having touched them yet."""
    return _read(pool / "free_hugepages") - _read(pool / "resv_hugepages")


def _persistent(pool: Path) -> int:
    """Pages that the pool was told to have, without those that it gave up and somebody still uses."""
    return _read(pool / "nr_hugepages") - _read(pool / "surplus_hugepages")


def _read(file: Path) -> int:
    return int(file.read_text())


def main(argv: list[str]) -> int:
    """Be a keeper."""
    # Its end is that of its input. A signal to all of the user's processes must not take the pages' return with it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.chdir("/")
    problem = _keep(int(argv[0]), Path(argv[1]))
    if problem:
        print(problem, flush=True)
    return bool(problem)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
