"""Leftovers of a run on the machine: processes, network namespaces, huge pages. A run must remove all of them; this checks that."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import psutil

from ringroad_lab.deadline import wait_until_none
from ringroad_lab.sandbox.huge_pages import POOL

RUN_VARIABLE = "RINGROAD_LAB_RUN"
"""Environment variable with the run's id, set for all processes that a run on a bed starts."""
NAMESPACES = Path("/run/netns")
# Names of the namespaces of devices and guests.
_OWN_NAMESPACE = re.compile(r"bridge-\w{8}|ringroad-lab-\w{8}-.*")
# The kernel takes a moment to end killed processes.
_PATIENCE_S = 10.0


@dataclass(frozen=True)
class Traces:
    """State of the machine before a run."""

    namespaces: frozenset[str]
    pool_pages: int
    used_pages: int

    @classmethod
    def now(cls, namespaces: Path = NAMESPACES, pool: Path = POOL) -> Traces:
        """Return the current state."""
        names = os.listdir(namespaces) if namespaces.is_dir() else []
        total, free = (int((pool / name).read_text()) if pool.is_dir() else 0 for name in ("nr_hugepages", "free_hugepages"))
        return cls(frozenset(filter(_OWN_NAMESPACE.fullmatch, names)), total, total - free)


def left_behind(
    before: Traces,
    run_id: str,
    *,
    with_huge_pages: bool,
    namespaces: Path = NAMESPACES,
    pool: Path = POOL,
    patience_s: float = _PATIENCE_S,
) -> list[str]:
    """Wait for leftovers of a run to go, and return descriptions of those that remain."""

    def look() -> list[str]:
        now = Traces.now(namespaces, pool)
        found = [*processes_of(run_id), *(f"network namespace {name}" for name in sorted(now.namespaces - before.namespaces))]
        if with_huge_pages and now.used_pages > before.used_pages:
            found.append(f"{now.used_pages - before.used_pages} huge pages in use")
        if with_huge_pages and now.pool_pages > before.pool_pages:
            found.append(f"{now.pool_pages - before.pool_pages} additional huge pages in the pool")
        return found

    return wait_until_none(look, patience_s)


def await_no_processes(run_id: str, patience_s: float = _PATIENCE_S) -> list[str]:
    """Wait for the processes of a run to end, and return descriptions of those that remain."""
    return wait_until_none(lambda: processes_of(run_id), patience_s)


def processes_of(run_id: str) -> list[str]:
    """Return descriptions of the running processes that a run started, except this one."""
    found = []
    for process in psutil.process_iter(["environ", "name", "status"]):
        its = (process.info["environ"] or {}).get(RUN_VARIABLE)
        if its == run_id and process.pid != os.getpid() and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(f"process {process.pid} ({process.info['name']})")
    return found
