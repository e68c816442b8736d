"""Names the process that holds a lease, so that others can notice its end before the lease ends."""

from __future__ import annotations

import os
import socket

import psutil

LEASE_S = 60.0
"""Duration of leases of requests and beds; holders renew them earlier."""


def this_process() -> str:
    """Return the name of this process in leases: machine, PID namespace, PID, start time."""
    namespace = os.stat("/proc/self/ns/pid").st_ino
    return f"{socket.gethostname()}:{namespace}:{os.getpid()}:{psutil.Process().create_time():.2f}"


def machine_of(holder: str) -> str:
    """Return the machine name of a lease holder."""
    return holder.partition(":")[0]


def is_gone(holder: str) -> bool:
    """Return whether a lease holder is known to have ended: its PID on this machine is unused, or belongs to another process."""
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
