"""Names of packages: a program that is missing is named with the package that has it, by Debian's name and by that of RPM systems."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import cache
from pathlib import Path

OWN_PACKAGE = "ringroad"
"""Stands for Ringroad's own programs, which no distribution has."""

# Of Debian, and of Fedora and RHEL; openSUSE mostly has the latter names too.
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
    "sockperf": "sockperf",
    "util-linux": "util-linux",
}
_OS_RELEASE = (Path("/etc/os-release"), Path("/usr/lib/os-release"))
# What distributions call themselves, or are like (os-release(5)), and what installs a package there.
_RPM_SYSTEMS = {
    "suse": "zypper install",
    "opensuse": "zypper install",
    "fedora": "dnf install",
    "rhel": "dnf install",
    "centos": "dnf install",
}


def how_to_install(packages: Sequence[str], installer: str | None = None) -> str:
    """Tell what to do for packages that are missing, by their Debian names: this system's way first.

    `installer` installs RPM packages; this system's own unless given, empty on Debian and all others.
    """
    installer = rpm_installer() if installer is None else installer
    debian = list(dict.fromkeys(package for package in packages if package != OWN_PACKAGE))
    rpm = list(dict.fromkeys(RPM_NAMES[package] for package in debian if package in RPM_NAMES))
    told = []
    if debian and installer and rpm:
        told.append(f"{installer} {' '.join(rpm)} (Debian: apt-get install {' '.join(debian)})")
    elif debian:
        others = f" (Fedora, RHEL: dnf install {' '.join(rpm)})" if rpm else ""
        told.append(f"apt-get install {' '.join(debian)}{others}")
    if OWN_PACKAGE in packages:
        told.append("`make build` in Ringroad's sources, with RINGROAD_BIN_DIR set to target/release there, or its Debian package")
    return "; ".join(told)


def package_name(package: str) -> str:
    """Return what this system calls a package of Debian's name."""
    return RPM_NAMES.get(package, package) if rpm_installer() else package


@cache
def rpm_installer() -> str:
    """Return what installs RPM packages on this system; empty where packages are others."""
    for path in _OS_RELEASE:
        try:
            return installer_of(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
    return ""


def installer_of(os_release: str) -> str:
    """Return the same by the text of os-release."""
    values = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line and not line.startswith("#"))
    names = [name for key in ("ID", "ID_LIKE") for text in shlex.split(values.get(key, ""))[:1] for name in text.split()]
    return next((_RPM_SYSTEMS[name.partition("-")[0]] for name in names if name.partition("-")[0] in _RPM_SYSTEMS), "")
