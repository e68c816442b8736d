"""Packages for tests, made by the systems' own programs."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path


def make_deb(folder: Path, name: str, version: str = "1.2-3", files: Mapping[str, Path] | None = None) -> Path:
    """Make a Debian package of some files, by their paths in it; without any it has a file of its own name."""
    tree = folder / f"tree-{name}"
    (tree / "DEBIAN").mkdir(parents=True)
    for path, source in (files or {}).items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(source.read_bytes())
        (tree / path).chmod(0o755)
    if not files:
        (tree / f"{name}.file").touch()
    control = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: Nobody <nobody@example.com>\nDescription: none\n"
    (tree / "DEBIAN/control").write_text(control)
    package = folder / f"{name}.deb"
    # Quickly: nobody keeps it.
    argv = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(package)]
    subprocess.run(argv, check=True, capture_output=True)
    return package


def make_rpm(folder: Path, name: str) -> Path:
    """Make an RPM package with one file."""
    spec = folder / f"{name}.spec"
    spec.write_text(
        f"Name: {name}\nVersion: 1.2\nRelease: 3\nSummary: none\nLicense: MIT\nBuildArch: noarch\n%description\nnone\n"
        f"%install\nmkdir -p %{{buildroot}}/usr/sbin\necho '#!/bin/sh' >%{{buildroot}}/usr/sbin/{name}\n%files\n/usr/sbin/{name}\n"
    )
    argv = ["rpmbuild", "-bb", "--quiet", "--define", f"_topdir {folder}/rpmbuild", "--define", f"_rpmdir {folder}", str(spec)]
    subprocess.run(argv, check=True, capture_output=True)
    (made,) = (folder / "noarch").glob(f"{name}-*.rpm")
    return made
