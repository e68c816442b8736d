"""Settings of the web page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import time

from ringroad_lab.fleet.inventory import BedSettings
from ringroad_lab.fleet.rules import MessageRule
from ringroad_lab.fleet.sources.interface import Hook

LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class WebSettings:
    """Settings of the web page."""

    public_read: bool = False
    """Whether reading needs no login. Writing always does."""
    host_names: tuple[str, ...] = ()
    """Host names by which browsers are allowed to reach the page; empty: all."""
    owner: str = "owner"
    """The user who started the server."""
    owner_token: str = ""
    """The owner's token, valid until the server ends; empty: there is none."""
    proxy_token_name: str = ""
    """Name of the token that a proxy sends with its requests; empty: there is no proxy."""
    proxy_header: str = "X-Forwarded-User"
    """The header in which the proxy names the logged-in user."""
    session_s: int = 12 * 3600
    """Time that a login lasts after the last page, s."""
    is_encrypted: bool = False
    """Whether browsers reach the page only by HTTPS."""
    hooks: Mapping[str, Hook] = field(default_factory=dict)
    """Sources that send messages about builds, by name."""
    rules: Sequence[MessageRule] = ()
    """Rules that turn those messages into requests."""
    beds: Mapping[str, BedSettings] = field(default_factory=dict)
    """Beds of the fleet, by name."""
    clock: Callable[[], float] = time
    """Returns seconds since 1970; tests set another clock."""
