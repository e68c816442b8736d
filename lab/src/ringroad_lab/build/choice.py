"""The build of its programs that a device or guest runs, as configured in scenarios."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ringroad_lab.trial import Frozen


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError(f"'{path}' is not an absolute path: start it with /")
    return path


def _package(text: str) -> str:
    name, mark, digits = text.partition(SUM_MARK)
    if mark and ("/" not in name or not _SHA256.fullmatch(digits)):
        raise ValueError(f"'{text}': {SUM_MARK} must follow the path or URL of a package, with 64 hexadecimal digits after it")
    if "://" in name:
        return _url(text)
    if "/" in name:
        return _absolute(text)
    if text.startswith("-") or not text.strip():
        raise ValueError(f"'{text}' is not a package: write NAME, NAME=VERSION, or a .deb or .rpm file by its path or URL")
    return text


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"'{text}' is not the URL of a package: write https://HOST/PATH")
    if parts.username or parts.password:
        raise ValueError("a URL with a password in it would be in every record: authenticate to the server in another way")
    return text


def _repository(text: str) -> str:
    # Transports other than these run programs.
    if not text.startswith(("/", "https://", "http://", "ssh://", "git://", "file:///")) and not _SCP_STYLE.fullmatch(text):
        raise ValueError(f"'{text}' is not a git repository: write https://..., ssh://..., USER@HOST:PATH or an absolute path")
    if urlsplit(text).password:
        raise ValueError("a URL with a password in it would be in every record: give git the password in another way")
    return text


def _listed(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


SUM_MARK = "#sha256="
"""Separates a package from its required SHA-256."""
_SHA256 = re.compile("[0-9a-fA-F]{64}")
_SCP_STYLE = re.compile(r"[A-Za-z0-9_][\w.-]*@[A-Za-z0-9][\w.-]*:[^\s]+")
AbsolutePath = Annotated[str, AfterValidator(_absolute)]
Packages = Annotated[tuple[Annotated[str, AfterValidator(_package)], ...], BeforeValidator(_listed), Field(max_length=500)]


class GitBuild(Frozen):
    """A commit, and the recipe that builds it."""

    repository: Annotated[str, AfterValidator(_repository), Field(max_length=1000)]
    commit: Annotated[str, Field(pattern=r"^[0-9A-Za-z_][\w./+-]*$", max_length=200)]
    """A commit, a tag or a branch; the record has the full commit hash."""
    recipe: Annotated[str, Field(min_length=1, max_length=10_000)]
    """A shell script that runs in a clean clone; it must install the build into the folder $PREFIX."""
    within_s: Annotated[float, Field(gt=0, le=86_400)] = 3600.0
    """Time limit of the recipe."""
    environment: Annotated[Mapping[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], str], Field(max_length=100)] = {}

    def __str__(self) -> str:
        """Return a description for users."""
        return f"{self.commit} of {self.repository}"


class BuildChoice(Frozen):
    """The source of programs; exactly one of these."""

    program: AbsolutePath | None = None
    """The executable of the device; its other programs are those of the machine."""
    prefix: AbsolutePath | None = None
    """A folder with `sbin`, `bin`, `lib` of an installed build, or a folder with unpacked packages."""
    package: Packages = ()
    """Packages: `NAME`, `NAME=VERSION`, a .deb or .rpm file by path or URL, also with `#sha256=HEX`, or a folder of them. Unpacked for the
    run, never installed."""
    git: GitBuild | None = None
    """A commit of a repository; built for the run unless an earlier build is kept."""
    image: AbsolutePath | None = None
    """A container image: a folder or an archive in OCI format, a Docker archive, or the file system itself as a folder or tar file."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        named = self._named()
        if len([value for value in named.values() if value]) != 1:
            raise ValueError(f"name one of {', '.join(named)}")
        return self

    def _named(self) -> dict[str, object]:
        return {"program": self.program, "prefix": self.prefix, "package": self.package, "git": self.git, "image": self.image}

    @property
    def is_packed(self) -> bool:
        """Whether the lab must unpack or build it into a folder first."""
        return bool(self.package or self.git or self.image)

    def __str__(self) -> str:
        """Return a description for users: `prefix /opt/ovs-3.4`."""
        (chosen,) = ((name, value) for name, value in self._named().items() if value)
        return f"{chosen[0]} {', '.join(chosen[1]) if isinstance(chosen[1], tuple) else chosen[1]}"


class GuestBuildChoice(BuildChoice):
    """The build of a guest. The guest also uses a kernel in the prefix, package or image."""

    kernel: AbsolutePath | None = None
    """A folder with `boot/vmlinuz-VERSION` and `lib/modules/VERSION`, as in a linux-image package."""

    def _named(self) -> dict[str, object]:
        return {**super()._named(), "kernel": self.kernel}


class StagedBuild(BuildChoice):
    """A build that the lab has unpacked into a folder, its `prefix`."""

    origin: str
    """The source of the build, for users."""

    def __str__(self) -> str:
        """Return its origin."""
        return self.origin


class StagedGuestBuild(StagedBuild, GuestBuildChoice):
    """A build of a guest that the lab has unpacked."""
