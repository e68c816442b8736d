"""Reads the kernel's counters of network interfaces."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ringroad_lab.errors import HostError
from ringroad_lab.host.interface import Host

# Counters of `ip -s -s link`, and the lab's common names of counters.
COUNTERS = {
    "rx": {"packets": "rx_frames", "errors": "rx_errors", "dropped": "rx_dropped", "missed_errors": "rx_missed"},
    "tx": {"packets": "tx_frames", "errors": "tx_errors", "dropped": "tx_dropped", "carrier_errors": "tx_carrier_errors"},
}


def show_links(host: Host, netns: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the output of `ip` for all interfaces of a network namespace, by name.

    Raises:
        HostError: `ip` failed, or its output is invalid.
    """
    inside = ["-n", netns] if netns is not None else []
    try:
        links = json.loads(host.run(["ip", *inside, "-j", "-d", "-s", "-s", "link", "show"]).stdout or "[]")
        return {link["ifname"]: link for link in links}
    except (ValueError, LookupError, TypeError) as error:
        raise HostError(f"{host.name}: invalid output of ip: {error!r}") from error


def interface_counters(link: Mapping[str, Any]) -> dict[str, int]:
    """Return the counters of one interface: `rx_frames`, `tx_dropped`, ...; counters that it does not have are left out."""
    stats = link.get("stats64", {})
    return {
        name: value
        for way, names in COUNTERS.items()
        for kernel_name, name in names.items()
        if isinstance(value := stats.get(way, {}).get(kernel_name), int)
    }
