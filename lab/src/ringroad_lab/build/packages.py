"""Downloads Debian and RPM packages and unpacks them into one folder. Nothing is installed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ringroad_lab.build.choice import SUM_MARK
from ringroad_lab.build.download import download
from ringroad_lab.build.unpack import TIMEOUT_S, Unpacker, own_copy
from ringroad_lab.errors import HostError
from ringroad_lab.host.interface import Host
from ringroad_lab.package_names import rpm_installer

# Time limit that is enough for a slow mirror.
_FETCH_S = 900.0
_SUFFIXES = (".deb", ".rpm")
_DEB = b"!<arch>\n"
_RPM = b"\xed\xab\xee\xdb"
_MAX_FILES = 2000
_APT = 'cd "$0" && exec apt-get download "$1"'


@dataclass(frozen=True)
class Unpacked:
    """Unpacked packages."""

    contents: str
    """Names and versions for users: `openvswitch-switch=3.1.0-2, libxdp1=1.3`."""
    sums: dict[str, str]
    """SHA-256 of each package, by its file's name."""


def unpack_packages(host: Host, packages: Sequence[str], folder: Path, root: Path) -> Unpacked:
    """Unpack packages into the empty folder `root`; `folder` is its parent, for downloads, and closed to other users.

    Raises:
        HostError: a package is not available or cannot be unpacked.
        MissingProgramError: a program for unpacking is not installed.
    """
    contents, sums = [], {}
    unpacker = Unpacker(host, root)
    for number, package in enumerate(packages):
        fetched = folder / f"fetched-{number}"
        fetched.mkdir()
        versions: dict[str, None] = {}
        package, _, wanted = package.partition(SUM_MARK)
        name = package.partition("=")[0]
        for file in _files(host, package, fetched):
            found = host.run(["sha256sum", "--", str(file)], timeout_s=TIMEOUT_S).stdout.lstrip("\\")[:64]
            if wanted and wanted.lower() != found:
                raise HostError(f"{package} has the SHA-256 {found} instead of {wanted}: it is another build")
            sums[file.name] = found
            its_name, _, version = _unpack(host, unpacker, file).partition("=")
            if "/" in package:
                contents.append(f"{its_name}={version}")
            versions[version] = None
        if "/" not in package:
            contents.append(f"{name}={'+'.join(sorted(versions))}")
    return Unpacked(", ".join(contents), sums)


def _files(host: Host, package: str, fetched: Path) -> Iterable[Path]:
    """Return files that no other user can change."""
    if "://" in package:
        return [download(package, fetched)]
    if "/" not in package:
        return _by_name(host, package, fetched)
    path = Path(package)
    if not path.is_dir():
        return [own_copy(host, path, fetched)]
    found = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    if not 0 < len(found) <= _MAX_FILES:
        raise HostError(f"the folder {path} has {len(found)} .deb and .rpm files: a build must have 1 to {_MAX_FILES}")
    return (own_copy(host, file, fetched) for file in found)


def _by_name(host: Host, package: str, fetched: Path) -> list[Path]:
    name = package.partition("=")[0]
    if rpm_installer().startswith("dnf"):
        argv = ["dnf", "--assumeyes", "download", "--destdir", str(fetched), package.replace("=", "-", 1)]
        hint = f"`dnf list --showduplicates {name}` shows the available versions"
    elif rpm_installer():
        raise HostError("packages can be downloaded by name only with apt-get or dnf: name the .rpm file by its path or URL")
    else:
        argv = ["sh", "-c", _APT, str(fetched), package]
        hint = f"`apt-cache policy {name}` shows the available versions"
    try:
        host.run(argv, timeout_s=_FETCH_S)
    except HostError as error:
        raise HostError(f"{error}; {hint}") from error
    return sorted(file for file in fetched.iterdir() if file.suffix in _SUFFIXES)


def _unpack(host: Host, unpacker: Unpacker, file: Path) -> str:
    """Unpack a package; return its name and version."""
    with file.open("rb") as opened:
        magic = opened.read(len(_DEB))
    if magic == _DEB:
        host.require("dpkg-deb", "dpkg")
        return unpacker.unpack("deb", file)
    if magic.startswith(_RPM):
        for program, package in (("rpm", "rpm"), ("rpm2cpio", "rpm2cpio"), ("cpio", "cpio")):
            host.require(program, package)
        return unpacker.unpack("rpm", file)
    raise HostError(f"{file.name} is neither a Debian nor an RPM package")
