"""A package repository as a source: each new package that is named in the settings makes a message, like a package in a folder."""

from __future__ import annotations

import hashlib
import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from ringroad_lab.fleet.positions import Positions
from ringroad_lab.fleet.sources.folder import EVENT
from ringroad_lab.fleet.sources.interface import Intake, Source, Watcher
from ringroad_lab.fleet.sources.own_thread import OwnThreadWatcher, Patience
from ringroad_lab.fleet.sources.package_index import ListedPackage, Repository
from ringroad_lab.request.message import Message
from ringroad_lab.text_types import Word

# The position of this part records that the first poll is complete.
_FIRST_LOOK = "first look"


class RepositorySource(Source):
    """A repository that is polled regularly."""

    title = "A repository of Debian or RPM packages"

    index: Word
    """URL of Debian's list `.../binary-amd64/Packages.xz` (also .gz, or plain), or of RPM's `.../repodata/repomd.xml`."""
    ca_file: Path | None = None
    """CA certificates for the server's certificate; default: the system's."""
    packages: Annotated[tuple[Annotated[Word, Field(min_length=1)], ...], Field(min_length=1, max_length=100)]
    """Globs of the names of the packages to take."""
    every_s: Annotated[float, Field(ge=1, le=86400)] = 300.0
    takes_present: bool = False
    """Whether packages that are present at the first poll make messages too."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        parts = urlsplit(self.index)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError(
                f"'{self.index}' is not an index URL: use https://HOST/.../Packages.xz or https://HOST/.../repodata/repomd.xml"
            )
        if self.ca_file is not None and not self.ca_file.is_file():
            raise ValueError(f"{self.ca_file}: certificate file not found")
        return self

    def watcher(self, name: str, intake: Intake) -> Watcher:
        """Return the watcher that polls the repository."""
        return RepositoryWatcher(name, self, intake)


class RepositoryWatcher(OwnThreadWatcher[RepositorySource]):
    """Takes packages that are not recorded yet. A package is recorded after it was taken; after a kill it comes again as a duplicate."""

    def __init__(self, name: str, source: RepositorySource, intake: Intake, patience: Patience | None = None) -> None:
        """Take the source's name and settings, and the intake of its messages."""
        super().__init__(name, source, intake, patience)
        self._repository = Repository(source.index, str(source.ca_file) if source.ca_file else None, self.patience.answer_s)
        self._positions = Positions(intake.requests.store)

    def work(self) -> float:
        """Poll once."""
        is_first = self._positions.get(self.name, _FIRST_LOOK) is None
        for listed in self._repository.packages():
            if self.stopping.is_set():
                return 0.0
            if not any(fnmatchcase(listed.name, glob) for glob in self.source.packages):
                continue
            mark = hashlib.sha256(f"{listed.url}:{listed.sha256}".encode()).hexdigest()
            if self._positions.get(self.name, mark) is not None:
                continue
            if self.source.takes_present or not is_first:
                self._take(listed, mark)
            self._positions.remember(self.name, mark, 1)
        if is_first:
            self._positions.remember(self.name, _FIRST_LOOK, 1)
        return self.source.every_s

    def close(self) -> None:
        """Stop, and close the connection."""
        super().close()
        self._repository.close()

    def _take(self, listed: ListedPackage, mark: str) -> None:
        fields = {name: getattr(listed, name) for name in ("kind", "name", "version", "release", "arch", "full_version", "sha256")}
        fields |= {"file": listed.url.rpartition("/")[2], "path": listed.url, "bytes": listed.size}
        message = Message(self.name, json.dumps(fields).encode(), self.intake.clock(), EVENT, mark)
        self.take(message, f"{listed.name} {listed.full_version}")
