"""Processes that tests watch or kill. Any of them may end at any moment, and is then left out."""

from contextlib import suppress

import psutil


def descendants(pid: int, text: str) -> list[psutil.Process]:
    """Return the running descendants of a process that have this argument in their command line, or this name."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if text == process.name() or text in process.cmdline():
                found.append(process)
    return found


def kill_tree(pid: int) -> None:
    """Kill a process and its descendants."""
    process = psutil.Process(pid)
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            each.kill()


def is_running(pid: int) -> bool:
    """Return whether a process has not ended; a zombie has."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
