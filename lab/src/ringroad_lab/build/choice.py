"""Which build of its programs a device or a guest runs, as scenarios name it."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ringroad_lab.trial import Frozen


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError(f"'{path}' is no absolute path: begin it with /")
    return path


def _package(text: str) -> str:
    if "/" in text:
        return _absolute(text)
    if text.startswith("-") or not text.strip():
        raise ValueError(f"'{text}' is no package: write NAME, NAME=VERSION or the path of a .deb file")
    return text


def _listed(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


AbsolutePath = Annotated[str, AfterValidator(_absolute)]
Packages = Annotated[tuple[Annotated[str, AfterValidator(_package)], ...], BeforeValidator(_listed), Field(max_length=500)]


class BuildChoice(Frozen):
    """Where programs are from; one of these."""

    program: AbsolutePath | None = None
    """The executable of the device; its other programs are the machine's."""
    prefix: AbsolutePath | None = None
    """A folder with `sbin`, `bin`, `lib` of an installed build, or one into which packages were unpacked."""
    package: Packages = ()
    """Debian packages, `NAME`, `NAME=VERSION` or the path of a .deb file: fetched and unpacked for the run, never installed."""
    image: AbsolutePath | None = None
    """A container image: a folder or an archive in the OCI's form, an archive of Docker's, or the file system itself as a folder or tar."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        named = self._named()
        if len([value for value in named.values() if value]) != 1:
            raise ValueError(f"name one of {', '.join(named)}")
        return self

    def _named(self) -> dict[str, object]:
        return {"program": self.program, "prefix": self.prefix, "package": self.package, "image": self.image}

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
