"""Which build of its programs a device or a guest runs, as scenarios name it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ringroad_lab.trial import Frozen


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError(f"'{path}' is no absolute path: begin it with /")
    return path


def _package(text: str) -> str:
    name, mark, digits = text.partition(SUM_MARK)
    if mark and ("/" not in name or not _SHA256.fullmatch(digits)):
        raise ValueError(f"'{text}': {SUM_MARK} stands after the path or URL of a package, with 64 hexadecimal digits after it")
    if "://" in name:
        return _url(text)
    if "/" in name:
        return _absolute(text)
    if text.startswith("-") or not text.strip():
        raise ValueError(f"'{text}' is no package: write NAME, NAME=VERSION, or a .deb or .rpm file by its path or URL")
    return text


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"'{text}' is no URL of a package: write https://HOST/PATH")
    if parts.username or parts.password:
        raise ValueError("a URL with a password in it would be in every record: let the server know this machine by other means")
    return text


def _repository(text: str) -> str:
    # Others of git's transports run programs.
    if not text.startswith(("/", "https://", "http://", "ssh://", "git://", "file:///")) and not _SCP_STYLE.fullmatch(text):
        raise ValueError(f"'{text}' is no git repository: write https://..., ssh://..., USER@HOST:PATH or an absolute path")
    if urlsplit(text).password:
        raise ValueError("a URL with a password in it would be in every record: let git know the password by other means")
    return text


def _listed(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


SUM_MARK = "#sha256="
"""Between a package and the SHA-256 that it has to have."""
_SHA256 = re.compile("[0-9a-fA-F]{64}")
_SCP_STYLE = re.compile(r"[A-Za-z0-9_][\w.-]*@[A-Za-z0-9][\w.-]*:[^\s]+")
AbsolutePath = Annotated[str, AfterValidator(_absolute)]
Packages = Annotated[tuple[Annotated[str, AfterValidator(_package)], ...], BeforeValidator(_listed), Field(max_length=500)]


class GitBuild(Frozen):
    """A commit, and how a build is made of it."""

    repository: Annotated[str, AfterValidator(_repository), Field(max_length=1000)]
    commit: Annotated[str, Field(pattern=r"^[0-9A-Za-z_][\w./+-]*$", max_length=200)]
    """A commit, a tag or a branch; what it was is recorded as the commit's whole name."""
    recipe: Annotated[str, Field(min_length=1, max_length=10_000)]
    """For the shell, in a clone that has nothing else; it puts the build into the folder $PREFIX."""
    within_s: Annotated[float, Field(gt=0, le=86_400)] = 3600.0
    """How long the recipe may take."""
    environment: Annotated[Mapping[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], str], Field(max_length=100)] = {}

    def __str__(self) -> str:
        """Write it for people."""
        return f"{self.commit} of {self.repository}"


class BuildChoice(Frozen):
    """Where programs are from; one of these."""

    program: AbsolutePath | None = None
    """The executable of the device; its other programs are the machine's."""
    prefix: AbsolutePath | None = None
    """A folder with `sbin`, `bin`, `lib` of an installed build, or one into which packages were unpacked."""
    package: Packages = ()
    """Packages: `NAME`, `NAME=VERSION`, a .deb or .rpm file by path or URL, also with `#sha256=HEX`, or a folder of them. Unpacked for the
    run, never installed."""
    git: GitBuild | None = None
    """A commit of a repository, built for the run unless it was before."""
    image: AbsolutePath | None = None
    """A container image: a folder or an archive in the OCI's form, an archive of Docker's, or the file system itself as a folder or tar."""

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
        """Whether the lab has to make a folder of it before it can be used."""
        return bool(self.package or self.git or self.image)

    def __str__(self) -> str:
        """Write it for people: `prefix /opt/ovs-3.4`."""
        (told,) = ((name, value) for name, value in self._named().items() if value)
        return f"{told[0]} {', '.join(told[1]) if isinstance(told[1], tuple) else told[1]}"


class GuestBuildChoice(BuildChoice):
    """The same of a guest. A kernel in a prefix, package or image is the guest's as well."""

    kernel: AbsolutePath | None = None
    """A folder with `boot/vmlinuz-VERSION` and `lib/modules/VERSION`, as a linux-image package has them."""

    def _named(self) -> dict[str, object]:
        return {**super()._named(), "kernel": self.kernel}


class StagedBuild(BuildChoice):
    """A build that the lab has unpacked into a folder, its `prefix`."""

    origin: str
    """What it was unpacked from, for people."""

    def __str__(self) -> str:
        """Write its origin."""
        return self.origin


class StagedGuestBuild(StagedBuild, GuestBuildChoice):
    """The same of a guest."""
