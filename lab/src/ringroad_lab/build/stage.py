"""Unpacks packages and images into a folder of the run, before anything is measured. Nothing is installed."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from ringroad_lab.build.choice import BuildChoice, GuestBuildChoice, StagedBuild, StagedGuestBuild
from ringroad_lab.errors import BuildError, HostError
from ringroad_lab.host.interface import Host
from ringroad_lab.scenario.model import DutChoice, Scenario

# A mirror that is far away, and images of some gigabytes.
_TIMEOUT_S = 900.0
_EXTRACT = """\
root=$1; shift
for file; do
    dpkg-deb --show --showformat='${Package}=${Version}\\n' "$file" && dpkg-deb --extract "$file" "$root" || exit 1
done
"""
_FILE_SYSTEM = ("usr", "bin", "sbin", "lib")


class Stage:
    """Unpacks each package and image of a run once, into the private folder of a host."""

    def __init__(self, host: Host, on_step: Callable[[str], None] = lambda step: None) -> None:
        """Take this machine, whose folder has to last as long as the run, and who is told what is being done."""
        self._host = host
        self._on_step = on_step
        self._staged: dict[tuple[object, ...], tuple[str, str]] = {}

    def scenarios(self, scenarios: Sequence[Scenario]) -> tuple[Scenario, ...]:
        """Return scenarios whose builds are all in folders.

        Raises:
            BuildError: a package or image cannot be had.
        """
        return tuple(each.model_copy(update={"duts": tuple(self._dut(dut) for dut in each.duts)}) for each in scenarios)

    def _dut(self, dut: DutChoice) -> DutChoice:
        name = f"dut.{dut.label}"
        guest_build = self._guest_build(dut.guest_build, f"{name}.guest_build") if dut.guest_build else None
        return dut.model_copy(update={"build": self._build(dut.build, f"{name}.build") if dut.build else None, "guest_build": guest_build})

    def _build(self, choice: BuildChoice, name: str) -> BuildChoice:
        if not (choice.package or choice.image):
            return choice
        prefix, origin = self._unpacked(choice, name)
        return StagedBuild(prefix=prefix, origin=origin)

    def _guest_build(self, choice: GuestBuildChoice, name: str) -> GuestBuildChoice:
        if not (choice.package or choice.image):
            return choice
        prefix, origin = self._unpacked(choice, name)
        return StagedGuestBuild(prefix=prefix, origin=origin)

    def _unpacked(self, choice: BuildChoice, name: str) -> tuple[str, str]:
        """Return the folder, and what is in it."""
        key = (choice.package, choice.image)
        if key not in self._staged:
            self._on_step(f"{name}: unpacking {choice}")
            # A folder with links in its path would look as if the files in it were elsewhere.
            folder = Path(os.path.realpath(self._host.folder)) / "unpacked" / str(len(self._staged))
            try:
                folder.mkdir(parents=True)
                origin = self._unpack_packages(choice.package, folder) if choice.image is None else self._unpack_image(choice.image, folder)
            except (HostError, OSError, tarfile.TarError, ValueError, LookupError, TypeError) as error:
                raise BuildError(f"{name}: {choice} cannot be unpacked: {error}") from error
            self._staged[key] = str(folder / "root"), origin
        return self._staged[key]

    def _unpack_packages(self, packages: Sequence[str], folder: Path) -> str:
        root = folder / "root"
        root.mkdir()
        origins = []
        for number, package in enumerate(packages):
            if "/" in package:
                files = [package]
            else:
                fetched = folder / f"fetched-{number}"
                fetched.mkdir()
                try:
                    self._host.run(["sh", "-c", 'cd "$0" && exec apt-get download "$1"', str(fetched), package], timeout_s=_TIMEOUT_S)
                except HostError as error:
                    name = package.partition("=")[0]
                    raise HostError(f"{error}; `apt-cache policy {name}` shows the versions that can be had here") from error
                files = [str(file) for file in sorted(fetched.glob("*.deb"))]
            said = self._host.run(["sh", "-c", _EXTRACT, "sh", str(root), *files], timeout_s=_TIMEOUT_S).stdout
            contents = [line.split("=") for line in said.splitlines()]
            name = contents[0][0] if "/" in package else package.partition("=")[0]
            origins.append(f"{name}={'+'.join(sorted({version for _, version in contents}))}")
        return f"package {', '.join(origins)}"

    def _unpack_image(self, image: str, folder: Path) -> str:
        """Unpack an image of any form, and name it by its content."""
        path, tag = _split_tag(image)
        root = folder / "root"
        if path.is_dir() and not (path / "oci-layout").exists():
            if not any((path / name).is_dir() for name in _FILE_SYSTEM):
                raise ValueError(
                    f"{path} is neither an image of the OCI's form nor a file system: it has none of {', '.join(_FILE_SYSTEM)}"
                )
            # As it is: what runs has its sums in the record.
            root.symlink_to(path)
            return f"image {path}"
        form = "oci"
        if path.is_file():
            with tarfile.open(path) as archive:
                names = {PurePosixPath(name).as_posix() for name in archive.getnames()}
            if not {"oci-layout", "manifest.json"} & names:
                root.mkdir()
                self._host.run(["tar", "--extract", "--file", str(path), "--directory", str(root)], timeout_s=_TIMEOUT_S)
                return f"image {path}, sha256:{self._host.run(['sha256sum', str(path)], timeout_s=_TIMEOUT_S).stdout[:64]}"
            form = "oci-archive" if "oci-layout" in names else "docker-archive"
        copied = folder / "oci"
        for program in ("skopeo", "umoci"):
            self._host.require(program, program)
        source = f"{form}:{path}{tag and f':{tag}'}"
        # As one image of a known name, for umoci unpacks no other.
        self._host.run(["skopeo", "copy", "--insecure-policy", source, f"oci:{copied}:build"], timeout_s=_TIMEOUT_S)
        self._host.run(["umoci", "raw", "unpack", "--image", f"{copied}:build", str(root)], timeout_s=_TIMEOUT_S)
        (manifest,) = json.loads((copied / "index.json").read_text())["manifests"]
        return f"image {image}, {manifest['digest']}"


def _split_tag(image: str) -> tuple[Path, str]:
    """Split `PATH:TAG`; a path that exists is one as it is."""
    if Path(image).exists() or ":" not in PurePosixPath(image).name:
        return Path(image), ""
    path, _, tag = image.rpartition(":")
    return Path(path), tag
