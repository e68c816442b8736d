"""Settings of the web page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import time

LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class WebSettings:
    """Settings of the web page."""

    public_read: bool = False
    """Whether reading needs no login. Writing always does."""
    host_names: tuple[str, ...] = ()
    """Names by which browsers may reach the page; empty: any."""
    session_s: float = 12 * 3600.0
    """How long a login lasts, s."""
    clock: Callable[[], float] = time
    """Seconds since 1970; another in tests."""
