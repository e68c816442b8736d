"""TCP ports for servers of tests that take a port by number."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens, below the kernel's range of ephemeral ports: no connection takes one of them later."""
    with ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            port = random.randrange(10000, 32000)
            listener = stack.enter_context(socket.socket())
            with suppress(OSError):
                listener.bind(("127.0.0.1", port))
                ports.append(port)
        return ports
