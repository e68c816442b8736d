"""The offloads of network interfaces, as `ethtool -k` names them."""

from __future__ import annotations

import re

from ringroad_lab.host.interface import Host

_LINE = re.compile(r"^\s*([a-z0-9-]+): (on|off)\b.*?(\[fixed\])?$", re.MULTILINE)
_NAMES = (
    "rx-checksumming",
    "tx-checksumming",
    "tx-checksum-ip-generic",
    "tcp-segmentation-offload",
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp6-segmentation",
    "udp-fragmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
    "large-receive-offload",
    "rx-vlan-offload",
    "tx-vlan-offload",
    "receive-hashing",
)


def offloads(host: Host, interface: str, netns: str | None = None) -> str:
    """Return the offloads of an interface for display, those that it cannot change marked `fixed`; empty if they are unknown.

    Raises:
        HostError: the host cannot be reached.
    """
    # A socket's path is no interface.
    if "/" in interface or host.find_program("ethtool") is None:
        return ""
    inside = ["ip", "netns", "exec", netns] if netns is not None else []
    output = host.run([*inside, "ethtool", "-k", interface], check=False).stdout
    states = {name: f"{state}{' fixed' if fixed else ''}" for name, state, fixed in _LINE.findall(output)}
    return ", ".join(f"{name} {states[name]}" for name in _NAMES if name in states)
