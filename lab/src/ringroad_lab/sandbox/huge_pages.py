"""Pages of 2 MiB for the duration of a run.

The size of the kernel's pool is a number that any root process can change. A keeper raises it by the number of missing pages, again on
request, and at the end lowers it by the pages added. It does not restore the former number, so that two runs do not undo each other's
changes.
"""

from __future__ import annotations

import fcntl
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import SandboxError
from ringroad_lab.sandbox.keeper import be_keeper, keeper

PAGE_MIB = 2
# Documentation/admin-guide/mm/hugetlbpage.rst of the kernel.
POOL = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
# The kernel moves other memory out of the way, which takes long on a full machine.
KEEPER_TIMEOUT_S = 60.0
# Time in which memory that is in use for the moment, such as for writing files, becomes free.
PATIENCE_S = 10.0
# Makes the kernel compact fragmented memory (Documentation/admin-guide/sysctl/vm.rst).
_COMPACT = Path("/proc/sys/vm/compact_memory")
# Time in which a process that has just ended returns its pages, or the keeper gets others.
AGAIN_TIMEOUT_S = 20.0
_ADVICE = "end programs that hold huge pages or memory (`grep Huge /proc/meminfo`), or set `huge_pages = false`"


@contextmanager
def huge_pages(mib: int, pool: Path = POOL, patience_s: float = PATIENCE_S) -> Iterator[Callable[[], None]]:
    """Provide at least `mib` MiB in free pages of 2 MiB until the block or this process ends. Yield a function that requests them again.

    Raises:
        SandboxError: there is not enough memory, or the pool cannot be changed.
    """
    with keeper(__name__, [str(math.ceil(mib / PAGE_MIB)), str(pool), str(patience_s)], KEEPER_TIMEOUT_S) as (answer, keeper_input):
        if answer != "ready":
            answer = f"the kernel took more than {KEEPER_TIMEOUT_S:g} s" if answer is None else answer
            raise SandboxError(f"cannot reserve {mib} MiB in huge pages: {answer or 'the keeper process ended'}; {_ADVICE}")

        def request_again() -> None:
            with suppress(BrokenPipeError):
                keeper_input.write("again\n")
                keeper_input.flush()

        yield request_again


def await_huge_pages(mib: int, ask: Callable[[], None], pool: Path = POOL, timeout_s: float = AGAIN_TIMEOUT_S) -> None:
    """Wait until `mib` MiB in pages of 2 MiB are free; call `ask` once if they are not.

    Raises:
        SandboxError: pages are missing; names their number and a remedy.
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
            f"provided no more within {timeout_s:g} s; {_ADVICE}"
        )


def _keep(pages: int, pool: Path, patience_s: float) -> str:
    """Raise the pool, report `ready`, wait for the end of the input, lower the pool; return an error text, empty on success."""
    added = 0
    try:
        with (pool / "nr_hugepages").open("r+", buffering=1) as number:
            try:
                until = time.monotonic() + patience_s
                while True:
                    added += _add(pages, pool, number.fileno())
                    free = _available(pool)
                    if free >= pages:
                        break
                    if time.monotonic() > until:
                        return f"the kernel has memory for {free * PAGE_MIB} MiB"
                    with suppress(OSError):
                        _COMPACT.write_text("1")
                    time.sleep(0.1)
                print("ready", flush=True)
                for _ in sys.stdin:
                    # `await_huge_pages` reports pages that are not available.
                    added += _add(pages, pool, number.fileno())
            finally:
                if added:
                    fcntl.flock(number.fileno(), fcntl.LOCK_EX)
                    (pool / "nr_hugepages").write_text(str(max(0, _persistent(pool) - added)))
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def _add(pages: int, pool: Path, lock: int) -> int:
    # An advisory lock among keepers: two keepers must not read the same number and both write.
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        before = _persistent(pool)
        missing = pages - _available(pool)
        if missing <= 0:
            return 0
        # Raising the number first turns surplus pages, which are still in use, into persistent ones.
        (pool / "nr_hugepages").write_text(str(before + _read(pool / "surplus_hugepages") + missing))
        return max(0, _persistent(pool) - before)
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)


def _available(pool: Path) -> int:
    """Return the number of pages that are free and not reserved by a mapping."""
    return _read(pool / "free_hugepages") - _read(pool / "resv_hugepages")


def _persistent(pool: Path) -> int:
    """Return the configured size of the pool, without surplus pages that are still in use."""
    return _read(pool / "nr_hugepages") - _read(pool / "surplus_hugepages")


def _read(file: Path) -> int:
    return int(file.read_text())


def main(argv: list[str]) -> int:
    """Run as a keeper."""
    be_keeper()
    problem = _keep(int(argv[0]), Path(argv[1]), float(argv[2]))
    if problem:
        print(problem, flush=True)
    return bool(problem)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
