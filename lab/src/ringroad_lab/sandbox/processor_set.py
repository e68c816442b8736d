"""Exclusive processors for a run, by the kernel's cpusets: partitions of cgroup v2, or groups of cgroup v1 (cgroups(7), cpuset(7)).

In v2 the kernel takes a partition's processors away from all other tasks. In v1 a second group has the other processors, and every task
that can be moved is moved there. At the end a task gets its former processor affinity back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Set
from contextlib import ExitStack, suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
# Processes of a killed run need a moment to end.
_REMOVE_ATTEMPTS = 100
_REMOVE_WAIT_S = 0.1


def own_processors(processors: Set[int], undo: ExitStack, root: Path = CGROUPS) -> tuple[str, Path | None]:
    """Take processors away from all other tasks; push the functions that undo this on `undo`.

    Args:
        processors: The run's processors.
        undo: Stack of functions that undo the changes, the latest first.
        root: Mount point of the control groups.

    Returns:
        What was done, or why not, and the file that a process writes its PID to in order to use these processors.
    """
    name = f"ringroad-lab-{os.getpid()}"
    try:
        if "cpuset" in _read(root / "cgroup.controllers").split():
            return _partition(processors, undo, root, root / name)
        if (root / "cpuset/cpuset.cpus").exists():
            return _groups(processors, undo, root / "cpuset", name)
    except OSError as error:
        return f"refused: {error.filename or root}: {error.strerror}", None
    return "not available: the kernel has no control groups for processors", None


def cpu_list(processors: Set[int]) -> str:
    """Format processors as a list for the kernel."""
    return ",".join(str(number) for number in sorted(processors))


def read_cpu_list(text: str) -> frozenset[int]:
    """Parse a processor list of the kernel: `0-3,8`."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.strip():
            found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _partition(processors: Set[int], undo: ExitStack, root: Path, group: Path) -> tuple[str, Path | None]:
    control = root / "cgroup.subtree_control"
    if "cpuset" not in _read(control).split():
        control.write_text("+cpuset")
        undo.callback(_write_if_possible, control, "-cpuset")
    group.mkdir()
    undo.callback(_remove, group, root)
    (group / "cpuset.cpus").write_text(cpu_list(processors))
    kind = group / "cpuset.cpus.partition"
    kind.write_text("root")
    if (state := _read(kind).strip()) != "root":
        return f"refused: the kernel reports for the partition: {state}", None
    return f"processors {cpu_list(processors)} are a partition of the run (cgroup v2)", group / "cgroup.procs"


def _groups(processors: Set[int], undo: ExitStack, root: Path, name: str) -> tuple[str, Path | None]:
    others = read_cpu_list(_read(root / "cpuset.cpus")) - processors
    if not others:
        return "refused: no processor would be left for other programs; name fewer in `cpus`", None
    for suffix, having in (("", processors), ("-others", others)):
        group = root / f"{name}{suffix}"
        group.mkdir()
        undo.callback(_remove, group, root)
        (group / "cpuset.cpus").write_text(cpu_list(having))
        (group / "cpuset.mems").write_text(_read(root / "cpuset.mems"))
    bound: dict[int, frozenset[int]] = {}
    undo.callback(_move_back, root / f"{name}-others", root, bound)
    kept = _move(root, root / f"{name}-others", bound)
    sharing = [
        group.name
        for group in sorted(root.iterdir())
        if (group / "tasks").exists()
        and not group.name.startswith(name)
        and read_cpu_list(_read(group / "cpuset.cpus")) & processors
        and _read(group / "tasks")
    ]
    text = f"processors {cpu_list(processors)} are the run's, {len(_read(root / f'{name}-others/tasks').split())} tasks were moved away"
    text += f", {kept} threads of the kernel stay where they are (cgroup v1)"
    return text + (f"; groups that can use them too: {', '.join(sharing)}" if sharing else ""), root / name / "cgroup.procs"


def _move(source: Path, target: Path, bound: dict[int, frozenset[int]]) -> int:
    """Move all tasks, and store their affinities in `bound`; return how many tasks cannot be moved."""
    usable = read_cpu_list(_read(source / "cpuset.cpus"))
    while True:
        tasks = [int(task) for task in _read(source / "tasks").split()]
        moved = 0
        for task in tasks:
            with suppress(OSError):
                affinity = frozenset(os.sched_getaffinity(task))
                (target / "tasks").write_text(str(task))
                moved += 1
                if affinity != usable:
                    bound[task] = affinity
        # A task that was moved late may have started others before: repeat until no task moves.
        if not moved:
            return len(tasks)


def _move_back(source: Path, target: Path, bound: dict[int, frozenset[int]]) -> None:
    _move(source, target, {})
    for task, affinity in bound.items():
        with suppress(OSError):
            os.sched_setaffinity(task, affinity)


def _remove(group: Path, target: Path) -> None:
    """Remove a group after its last process has ended or been moved."""
    for _ in range(_REMOVE_ATTEMPTS):
        for process in _read(group / "cgroup.procs").split():
            _write_if_possible(target / "cgroup.procs", process)
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(_REMOVE_WAIT_S)


def _write_if_possible(file: Path, text: str) -> None:
    with suppress(OSError):
        file.write_text(text)


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
