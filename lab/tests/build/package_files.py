"""Packages for tests, made with the systems' own programs."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path


def make_deb(folder: Path, name: str, version: str = "1.2-3", files: Mapping[str, Path] | None = None) -> Path:
    """Make a Debian package of some files, by their paths in it; without files it has a file with its own name."""
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
    # Fast compression: the package is temporary.
    argv = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(package)]
    subprocess.run(argv, check=True, capture_output=True)
    return package


def make_rpm(folder: Path, name: str, files: Mapping[str, Path] | None = None) -> Path:
    """Make an RPM package of some files, by their paths in it; without files it has a script with its own name."""
    script = folder / f"{name}.sh"
    script.write_text("#!/bin/sh\n")
    wanted = files or {f"usr/sbin/{name}": script}
    installs = "".join(f"install -D -m 755 {source} %{{buildroot}}/{path}\n" for path, source in wanted.items())
    listed = "".join(f"/{path}\n" for path in wanted)
    spec = folder / f"{name}.spec"
    spec.write_text(
        # Files stay unchanged: no stripping, no dependency scan.
        f"%global debug_package %{{nil}}\n%global __os_install_post %{{nil}}\nAutoReqProv: no\n"
        f"Name: {name}\nVersion: 1.2\nRelease: 3\nSummary: none\nLicense: MIT\n%description\nnone\n%install\n{installs}%files\n{listed}"
    )
    defines = {"_topdir": f"{folder}/rpmbuild", "_rpmdir": str(folder), "_binary_payload": "w1.gzdio", "_dbpath": f"{folder}/rpmdb"}
    options = [part for key, value in defines.items() for part in ("--define", f"{key} {value}")]
    subprocess.run(["rpmbuild", "-bb", "--quiet", *options, str(spec)], check=True, capture_output=True)
    (made,) = folder.glob(f"*/{name}-1.2-3.*.rpm")
    return made
