"""Who holds a lease: a process, which others may know to have ended before its lease does."""

from __future__ import annotations

import os
import socket

import psutil

LEASE_S = 60.0
"""How long leases of requests and beds last; they are renewed sooner."""


def this_process() -> str:
    """Return what a lease names this process: machine, namespace of processes, number, start."""
    namespace = os.stat("/proc/self/ns/pid").st_ino
    return f"{socket.gethostname()}:{namespace}:{os.getpid()}:{psutil.Process().create_time():.2f}"


def machine_of(holder: str) -> str:
    """Return the name of the machine of a lease's holder."""
    return holder.partition(":")[0]


def is_gone(holder: str) -> bool:
    """Whether a lease's holder is known to have ended: a process of this machine that is not there, or is another by now."""
    if machine_of(holder) != socket.gethostname():
        return False
    mine = this_process().split(":")
    its = holder.split(":")
    if its[:2] != mine[:2] or len(its) != len(mine):
        return False
    try:
        process = psutil.Process(int(its[2]))
        return f"{process.create_time():.2f}" != its[3] or process.status() == psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError):
        return True
