"""A folder of packages as a source: each new Debian or RPM package makes a message, for users whose build system sends none."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from pydantic import model_validator

from ringroad_lab.errors import LabError, StoreError
from ringroad_lab.fleet.intake import keep_dead, receive
from ringroad_lab.fleet.sources.interface import Intake, Source, Watcher
from ringroad_lab.request.message import Message

EVENT = "package"
_SUFFIXES = (".deb", ".rpm")
_MAX_FILES = 20_000
_TOOL_S = 30.0
_MAX_FIELD_CHARACTERS = 200


class FolderSource(Source):
    """A folder into which packages are put."""

    title = "A folder of Debian and RPM packages"

    folder: Path

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.folder.is_absolute():
            raise ValueError(f"'{self.folder}' is not an absolute path: begin it with /")
        return self

    def watcher(self, name: str, intake: Intake) -> Watcher:
        """Return the watcher that polls the folder."""
        return FolderWatcher(name, self.folder, intake)


class FolderWatcher(Watcher):
    """Polls a folder, and takes a file after two polls found the same size and modification time: then the file is complete.

    A file that was renamed into the folder is complete at once, but cannot be distinguished from one that is being copied.
    """

    def __init__(self, name: str, folder: Path, intake: Intake) -> None:
        """Take the source's name, its folder, and the intake of its messages."""
        self._name = name
        self._folder = folder
        self._intake = intake
        self._seen: dict[str, str] = {}
        """The mark of each file at the last poll."""
        self._done: dict[str, str] = {}
        """The mark with which each file was taken."""

    def look(self) -> None:
        """Poll once; take the files that are new and complete.

        Raises:
            LabError: the folder cannot be read, or the store failed. Files that were not taken are found again.
        """
        marks = dict(self._marks())
        complete = [path for path, mark in marks.items() if self._seen.get(path) == mark and self._done.get(path) != mark]
        self._seen = marks
        self._done = {path: mark for path, mark in self._done.items() if path in marks}
        for path in sorted(complete):
            self._take(path, marks[path])
            self._done[path] = marks[path]

    def _marks(self) -> Iterator[tuple[str, str]]:
        try:
            with os.scandir(self._folder) as entries:
                for number, entry in enumerate(entries):
                    if number >= _MAX_FILES:
                        raise LabError(f"source '{self._name}': {self._folder} has more than {_MAX_FILES} files: remove old packages")
                    if entry.name.startswith(".") or not entry.name.endswith(_SUFFIXES):
                        continue
                    try:
                        status = entry.stat()
                    except FileNotFoundError:
                        continue
                    if stat.S_ISREG(status.st_mode):
                        yield entry.path, f"{status.st_size}:{status.st_mtime_ns}"
        except OSError as error:
            raise LabError(f"source '{self._name}': {self._folder}: {error.strerror}") from error

    def _take(self, path: str, mark: str) -> None:
        def message(payload: bytes) -> Message:
            return Message(self._name, payload, self._intake.clock(), EVENT, hashlib.sha256(f"{path}:{mark}".encode()).hexdigest())

        if self._intake.requests.is_delivered(message(b"")):
            return
        try:
            received = receive(self._intake.requests, self._intake.rules, message(json.dumps(describe_package(Path(path))).encode()))
        except StoreError:
            raise
        except LabError as error:
            received = keep_dead(self._intake.requests, message(json.dumps({"path": path}).encode()), str(error))
        self._intake.say(f"{path}: {received.text}")


def describe_package(path: Path) -> dict[str, str | int]:
    """Return the fields of a message about a package: from its metadata if a program can read them, else from its file name.

    Raises:
        LabError: the file cannot be read, or is not a package.
    """
    kind = path.suffix[1:]
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = path.stat().st_size
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}") from error
    fields = _debian_fields(path) if kind == "deb" else _rpm_fields(path)
    cut = {name: value[:_MAX_FIELD_CHARACTERS] for name, value in fields.items()}
    return {"kind": kind, **cut, "file": path.name, "path": str(path), "bytes": size, "sha256": digest}


def _debian_fields(path: Path) -> dict[str, str]:
    if (program := shutil.which("dpkg-deb")) is not None:
        values = _query(path, [program, "--show", "--showformat=${Package}\\n${Version}\\n${Architecture}", str(path)])
    else:
        # NAME_VERSION_ARCH.deb; file names omit the colon of an epoch.
        values = path.name.removesuffix(".deb").split("_")
    if len(values) != 3 or not all(values):
        raise LabError(f"{path}: a Debian package needs a name, version and architecture: {' '.join(values)[:200]}")
    name, full, arch = values
    version, _, release = full.rpartition("-") if "-" in full else (full, "", "")
    return {"name": name, "version": version.rpartition(":")[2], "release": release, "arch": arch, "full_version": full}


def _rpm_fields(path: Path) -> dict[str, str]:
    if (program := shutil.which("rpm")) is not None:
        values = _query(
            path, [program, "-qp", "--nosignature", "--qf", "%{NAME}\\n%{VERSION}\\n%{RELEASE}\\n%{ARCH}\\n%|EPOCH?{%{EPOCH}}|", str(path)]
        )
    else:
        # NAME-VERSION-RELEASE.ARCH.rpm
        rest, _, arch = path.name.removesuffix(".rpm").rpartition(".")
        values = [*rest.rsplit("-", 2), arch, ""]
    if len(values) != 5 or not all(values[:4]):
        raise LabError(f"{path}: an RPM package needs a name, version, release and architecture: {' '.join(values)[:200]}")
    name, version, release, arch, epoch = values
    return {
        "name": name,
        "version": version,
        "release": release,
        "arch": arch,
        "full_version": f"{epoch}:" * bool(epoch) + f"{version}-{release}",
    }


def _query(path: Path, argv: Sequence[str]) -> list[str]:
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_TOOL_S, stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"})
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{path}: {argv[0]} timed out after {_TOOL_S:.0f} s") from error
    if done.returncode:
        raise LabError(f"{path}: {done.stderr.decode(errors='replace').strip()[-500:] or 'not a package'}")
    return done.stdout.decode(errors="replace").split("\n")
