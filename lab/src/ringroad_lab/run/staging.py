"""Prepares each build of a run in a folder before the run measures: unpacks packages and images, builds commits. Nothing is installed."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ringroad_lab.build.choice import BuildChoice, StagedBuild, StagedGuestBuild
from ringroad_lab.build.commit import make_build
from ringroad_lab.build.packages import unpack_packages
from ringroad_lab.build.unpack import Unpacker, own_copy
from ringroad_lab.errors import BuildError, HostError
from ringroad_lab.host.interface import Host
from ringroad_lab.scenario.model import DutChoice, Scenario

_FILE_SYSTEM = ("usr", "bin", "sbin", "lib")


@dataclass(frozen=True)
class _Staged:
    prefix: str
    origin: str
    """The content, for users."""
    facts: dict[str, str]
    """Facts that identify the content."""


class Staging:
    """Prepares each package, commit and image of a run once; it is unpacked into the private folder of a host."""

    def __init__(self, host: Host, on_step: Callable[[str], None] = lambda step: None) -> None:
        """Use a host whose folder must exist as long as the run; `on_step` receives progress messages."""
        self._host = host
        self._on_step = on_step
        self._staged: dict[tuple[object, ...], _Staged] = {}
        self.facts: dict[str, dict[str, str]] = {}
        """Facts of the run about the builds of all devices: sums of packages, hashes of commits."""

    def scenarios(self, scenarios: Sequence[Scenario]) -> tuple[Scenario, ...]:
        """Return scenarios whose builds are all in folders.

        Raises:
            BuildError: a package or image is not available.
        """
        return tuple(each.model_copy(update={"duts": tuple(self._dut(dut) for dut in each.duts)}) for each in scenarios)

    def _dut(self, dut: DutChoice) -> DutChoice:
        name = f"dut.{dut.label}"
        guest_build = self._stage(dut.guest_build, f"{name}.guest_build", StagedGuestBuild)
        build = self._stage(dut.build, f"{name}.build", StagedBuild)
        return dut.model_copy(update={"build": build, "guest_build": guest_build})

    def _stage(self, choice: BuildChoice | None, name: str, staged_type: type[StagedBuild]) -> BuildChoice | None:
        """Unpack a build, if it is packed."""
        if choice is None or not choice.is_packed:
            return choice
        staged = self._unpacked(choice, name)
        return staged_type(prefix=staged.prefix, origin=staged.origin)

    def _unpacked(self, choice: BuildChoice, name: str) -> _Staged:
        """Return the folder and its content."""
        key = (choice.package, choice.git and choice.git.model_dump_json(), choice.image)
        if key not in self._staged:
            self._on_step(f"{name}: {'building' if choice.git else 'unpacking'} {choice}")
            # Links in the path of the folder would make its files appear to be elsewhere.
            unpacked = Path(os.path.realpath(self._host.folder)) / "unpacked"
            try:
                unpacked.mkdir(exist_ok=True)
                self._staged[key] = self._make(choice, Path(tempfile.mkdtemp(dir=unpacked)))
            except BuildError as error:
                raise BuildError(f"{name}: {error}", error.log) from error
            except (HostError, OSError, ValueError) as error:
                raise BuildError(f"{name}: {choice} is not available: {error}") from error
        self.facts[name] = self._staged[key].facts
        return self._staged[key]

    def _make(self, choice: BuildChoice, folder: Path) -> _Staged:
        root = folder / "root"
        if choice.git is not None:
            made = make_build(self._host, choice.git, folder)
            sums = {"recipe": f"sha256:{hashlib.sha256(choice.git.recipe.encode()).hexdigest()}"}
            origin = f"commit {made.commit} of {choice.git.repository}"
            return _Staged(str(made.root), origin, {"repository": choice.git.repository, "commit": made.commit, **sums})
        if choice.image is not None:
            origin = self._unpack_image(choice.image, folder)
            return _Staged(str(root), origin, {"image": origin})
        root.mkdir()
        unpacked = unpack_packages(self._host, choice.package, folder, root)
        return _Staged(str(root), f"package {unpacked.contents}", {file: f"sha256:{found}" for file, found in unpacked.sums.items()})

    def _unpack_image(self, image: str, folder: Path) -> str:
        """Unpack an image in any format, and return a name from its content."""
        path, tag = _split_tag(image)
        root = folder / "root"
        if path.is_dir() and not (path / "oci-layout").exists():
            if not any((path / name).is_dir() for name in _FILE_SYSTEM):
                raise ValueError(f"{path} is neither an OCI image nor a file system: it has none of {', '.join(_FILE_SYSTEM)}")
            # Nothing is copied: the record has the sums of the files that run.
            root.symlink_to(path)
            return f"image {path}"
        root.mkdir()
        (folder / "image").mkdir()
        copy = own_copy(self._host, path, folder / "image")
        return f"image {image}, {Unpacker(self._host, root).unpack('image', copy, *([tag] if tag else []))}"


def _split_tag(image: str) -> tuple[Path, str]:
    """Split `PATH:TAG`; an existing path is not split."""
    if Path(image).exists() or ":" not in PurePosixPath(image).name:
        return Path(image), ""
    path, _, tag = image.rpartition(":")
    return Path(path), tag
