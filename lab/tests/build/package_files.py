"""Packages for tests, made with the systems' own programs."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
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


def make_rpm(folder: Path, name: str, files: Mapping[str, Path] | None = None, links: Mapping[str, Path] | None = None) -> Path:
    """Make an RPM package of some files and links, by their paths in it; without any it has a script with its own name."""
    script = folder / f"{name}.sh"
    script.write_text("#!/bin/sh\n")
    links = links or {}
    wanted = files or ({} if links else {f"usr/sbin/{name}": script})
    installs = "".join(f"install -D -m 755 {source} %{{buildroot}}/{path}\n" for path, source in wanted.items())
    installs += "".join(f"mkdir -p %{{buildroot}} && ln -s {target} %{{buildroot}}/{path}\n" for path, target in links.items())
    listed = "".join(f"/{path}\n" for path in (*wanted, *links))
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


def tar_of(*members: tarfile.TarInfo | tuple[str, bytes]) -> bytes:
    """Return a tar archive of these members and nothing else: files by name and content, other members by their heads."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for member in members:
            head, content = (member, b"") if isinstance(member, tarfile.TarInfo) else (tarfile.TarInfo(member[0]), member[1])
            head.size = len(content)
            tar.addfile(head, io.BytesIO(content))
    return archive.getvalue()


def tar_head(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o755) -> tarfile.TarInfo:
    """Return the head of an empty file, a folder, a link or a device."""
    head = tarfile.TarInfo(name)
    head.type, head.linkname, head.mode = kind, link, mode
    # The memory, if it is a character device.
    head.devmajor = head.devminor = 1
    return head


def make_raw_deb(file: Path, data: bytes) -> Path:
    """Make a Debian package whose content is exactly this tar archive, which dpkg-deb would not make."""
    control = tar_of(("./control", f"Package: {file.stem}\nVersion: 1\nArchitecture: all\nMaintainer: a\nDescription: b\n".encode()))
    parts = {"debian-binary": b"2.0\n", "control.tar": control, "data.tar": data}
    # The format of ar(5).
    heads = (f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(part):<10}`\n".encode() + part for name, part in parts.items())
    file.write_bytes(b"!<arch>\n" + b"".join(head + b"\n" * (len(head) % 2) for head in heads))
    return file


def make_oci_layout(folder: Path, *layers: bytes) -> Path:
    """Make a container image of layers, each a tar archive, in OCI format and with the tag `1.0`."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def blob(content: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    ids = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    config = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": ids}, "config": {}}
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [blob(gzip.compress(layer), "layer.v1.tar+gzip") for layer in layers],
    }
    head = blob(json.dumps(manifest).encode(), "manifest.v1+json") | {"annotations": {"org.opencontainers.image.ref.name": "1.0"}}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [head]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder
