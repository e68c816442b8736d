"""Pages of 2 MiB for the length of a run.

The kernel's pool is a number that whoever is root may change. A keeper raises it by what is missing, does so again whenever it is asked,
and at the end lowers it by as much. Lowering by what was added, rather than writing the former number, keeps two runs from undoing each
other's.
"""

from __future__ import annotations

import fcntl
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import SandboxError
from ringroad_lab.sandbox.keeper import be_keeper, keeper

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
    with keeper(__name__, [str(math.ceil(mib / PAGE_MIB)), str(pool)], KEEPER_TIMEOUT_S) as (said, asking):
        if said != "ready":
            said = f"the kernel took more than {KEEPER_TIMEOUT_S:g} s" if said is None else said
            raise SandboxError(f"no {mib} MiB in huge pages: {said or 'their keeper ended'}; {_ADVICE}")

        def ask_again() -> None:
            with suppress(BrokenPipeError):
                asking.write("again\n")
                asking.flush()

        yield ask_again


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
    be_keeper()
    problem = _keep(int(argv[0]), Path(argv[1]))
    if problem:
        print(problem, flush=True)
    return bool(problem)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
