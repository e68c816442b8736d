"""Names of packages by system."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ringroad_lab
from ringroad_lab.package_names import OWN_PACKAGE, RPM_NAMES, how_to_install, installer_of

SOURCES = Path(ringroad_lab.__file__).parent


@pytest.mark.parametrize(
    ("os_release", "installer"),
    [
        ('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\n', ""),
        ("ID=ubuntu\nID_LIKE=debian\n", ""),
        ("ID=fedora\nVERSION_ID=43\n", "dnf install"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"\n', "zypper install"),
        ("# ID=fedora\nID=arch\n", ""),
        ("nothing of use", ""),
    ],
)
def test_the_system_is_identified_by_its_os_release(os_release: str, installer: str) -> None:
    assert installer_of(os_release) == installer


def test_both_names_are_reported_this_systems_name_first() -> None:
    packages = ["iproute2", "mount", "util-linux"]
    assert how_to_install(packages, "") == "apt-get install iproute2 mount util-linux (Fedora, RHEL: dnf install iproute util-linux)"
    assert how_to_install(packages, "dnf install") == ("dnf install iproute util-linux (Debian: apt-get install iproute2 mount util-linux)")
    assert how_to_install(["unknown"], "dnf install") == "apt-get install unknown"
    assert how_to_install([OWN_PACKAGE], "").startswith("`make build`")


def test_every_package_that_the_lab_requires_has_an_rpm_name() -> None:
    required = {
        package
        for path in SOURCES.rglob("*.py")
        for package in re.findall(r'(?:require|MissingProgramError)\((?:"[^"]+"|[A-Z_]+), "([a-z0-9-]+)"', path.read_text())
    }
    assert {"iproute2", "dpdk-dev", "qemu-system-x86"} <= required <= set(RPM_NAMES)
