"""Names of packages: errors about missing programs name the Debian package and the RPM package that provide them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path

OWN_PACKAGE = "ringroad"
"""Placeholder for Ringroad's own programs, which no distribution packages."""

# Names in Fedora and RHEL by Debian's names; openSUSE mostly uses the RPM names too.
RPM_NAMES = {
    "busybox": "busybox",
    "coreutils": "coreutils",
    "dpdk": "dpdk-tools",
    "dpdk-dev": "dpdk",
    "dpkg": "dpkg",
    "ethtool": "ethtool",
    "git": "git-core",
    "iproute2": "iproute",
    "libc-bin": "glibc-common",
    "linux-perf": "perf",
    "mount": "util-linux",
    "netpipe-tcp": "NetPIPE",
    "openvswitch-common": "openvswitch",
    "openvswitch-switch": "openvswitch",
    "openvswitch-switch-dpdk": "openvswitch-dpdk",
    "qemu-system-x86": "qemu-system-x86-core",
    "skopeo": "skopeo",
    "sockperf": "sockperf",
    "util-linux": "util-linux",
}
_OS_RELEASE = (Path("/etc/os-release"), Path("/usr/lib/os-release"))
# Installers by ID or ID_LIKE of the distribution (os-release(5)).
_RPM_SYSTEMS = {
    "suse": "zypper install",
    "opensuse": "zypper install",
    "fedora": "dnf install",
    "rhel": "dnf install",
    "centos": "dnf install",
}


def how_to_install(packages: Sequence[str], installer: str | None = None) -> str:
    """Describe how to install missing packages, given by their Debian names: this system's way first.

    `installer` is the command that installs RPM packages; None: this system's; empty on Debian and other systems.
    """
    installer = rpm_installer() if installer is None else installer
    debian = list(dict.fromkeys(package for package in packages if package != OWN_PACKAGE))
    rpm = list(dict.fromkeys(RPM_NAMES[package] for package in debian if package in RPM_NAMES))
    commands = []
    if debian and installer and rpm:
        commands.append(f"{installer} {' '.join(rpm)} (Debian: apt-get install {' '.join(debian)})")
    elif debian:
        others = f" (Fedora, RHEL: dnf install {' '.join(rpm)})" if rpm else ""
        commands.append(f"apt-get install {' '.join(debian)}{others}")
    if OWN_PACKAGE in packages:
        commands.append("`make build` in Ringroad's sources, with RINGROAD_BIN_DIR set to target/release there, or its Debian package")
    return "; ".join(commands)


def package_name(package: str) -> str:
    """Return this system's name of a Debian package."""
    return RPM_NAMES.get(package, package) if rpm_installer() else package


@cache
def rpm_installer() -> str:
    """Return the command that installs RPM packages on this system; empty if the system does not use RPM."""
    for path in _OS_RELEASE:
        try:
            return installer_of(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
    return ""


def installer_of(os_release: str) -> str:
    """Return the command that installs RPM packages, from the text of os-release."""
    values = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line and not line.startswith("#"))
    names = [name for key in ("ID", "ID_LIKE") for text in shlex.split(values.get(key, ""))[:1] for name in text.split()]
    return next((_RPM_SYSTEMS[name.partition("-")[0]] for name in names if name.partition("-")[0] in _RPM_SYSTEMS), "")
