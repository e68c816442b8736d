"""Reads the index of a package repository, in the formats of Debian and of RPM. The size of foreign data is limited."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, Any
from urllib.parse import urljoin
from xml.etree import ElementTree

import requests

from ringroad_lab import __version__
from ringroad_lab.errors import LabError
from ringroad_lab.http_answer import IDENTITY, AnswerTooLongError, pieces
from ringroad_lab.safe_xml import elements

MAX_INDEX_BYTES = 256 << 20
"""Limit of an index as it is transferred."""
MAX_PLAIN_BYTES = 2 << 30
"""Limit of an unpacked index."""
# Time limit of a whole index; a server that takes longer is given up.
_WITHIN_S = 900.0
_MAX_LINE_BYTES = 1 << 16
_PIECE_BYTES = 1 << 16
_MAX_FIELD_CHARACTERS = 200
_REPO = "{http://linux.duke.edu/metadata/repo}"
_COMMON = "{http://linux.duke.edu/metadata/common}"


class RepositoryError(LabError):
    """An index is not available, or invalid."""


@dataclass(frozen=True)
class ListedPackage:
    """A package that a repository has."""

    kind: str
    """`deb` or `rpm`."""
    name: str
    version: str
    release: str
    arch: str
    full_version: str
    """Version as the packaging system writes it."""
    url: str
    size: int
    """Bytes."""
    sha256: str


class Repository:
    """A repository, by the URL of its index: Debian's `Packages`, also compressed, or RPM's `repodata/repomd.xml`."""

    def __init__(self, url: str, ca_file: str | None, answer_s: float) -> None:
        """Take the URL, a file of CA certificates if the system's do not suffice, and how long to wait for an answer."""
        self._url = url
        self._answer_s = answer_s
        self._session = requests.Session()
        self._session.headers["User-Agent"] = f"ringroad-lab/{__version__}"
        if ca_file is not None:
            self._session.verify = ca_file
        self._tags: dict[str, str] = {}
        """The entity tag of each file that was read to its end, by URL."""

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def packages(self) -> Iterator[ListedPackage]:
        """Yield the packages; none if the index has not changed since it was last read to its end.

        Raises:
            RepositoryError: the index is not available, too long, or invalid.
        """
        is_rpm = self._url.endswith("/repomd.xml")
        with self._fetch(self._url) as index:
            if index is None:
                return
            if is_rpm:
                yield from self._rpm_packages(index)
            else:
                with _plain(index, self._url) as plain:
                    yield from _debian_packages(plain, self._root())

    def _root(self) -> str:
        before, dists, _ = self._url.partition("/dists/")
        return f"{before}/" if dists else urljoin(self._url, ".")

    def _rpm_packages(self, index: IO[bytes]) -> Iterator[ListedPackage]:
        root = urljoin(self._url, "..")
        primary = None
        for element in _elements(index, f"{_REPO}data"):
            location = element.find(f"{_REPO}location")
            if element.get("type") == "primary" and location is not None:
                primary = urljoin(root, str(location.get("href", "")))
        if primary is None:
            raise RepositoryError(f"{self._url} has no primary package list")
        with self._fetch(primary) as packed:
            if packed is None:
                return
            with _plain(packed, primary) as plain:
                for element in _elements(plain, f"{_COMMON}package"):
                    if (listed := _rpm_package(element, root)) is not None:
                        yield listed

    @contextmanager
    def _fetch(self, url: str) -> Iterator[IO[bytes] | None]:
        """Download a file of the server; None if the file has not changed."""
        known = {"If-None-Match": self._tags[url]} if url in self._tags else {}
        with tempfile.TemporaryFile() as file:
            try:
                with self._session.get(url, stream=True, timeout=self._answer_s, headers={**IDENTITY, **known}) as answer:
                    if answer.status_code == 304:
                        yield None
                        return
                    answer.raise_for_status()
                    for piece in pieces(answer, within_s=_WITHIN_S, most_bytes=MAX_INDEX_BYTES):
                        file.write(piece)
                    tag = answer.headers.get("ETag", "")
            except (AnswerTooLongError, requests.RequestException) as error:
                raise RepositoryError(f"{url}: {error}") from error
            file.seek(0)
            yield file
            if tag:
                self._tags[url] = tag


@contextmanager
def _plain(packed: IO[bytes], url: str) -> Iterator[IO[bytes]]:
    """Unpack a file that is compressed according to its name."""
    name = url.rpartition("/")[2]
    program: subprocess.Popen[bytes] | None = None
    stream: Any
    if name.endswith(".zst"):
        if shutil.which("zstd") is None:
            raise RepositoryError(f"{url} is compressed with zstd, which is not installed: install zstd")
        program = subprocess.Popen(["zstd", "-dcq"], stdin=packed, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        stream = program.stdout
    else:
        openers: dict[str, Any] = {"xz": lzma.open, "gz": gzip.open, "bz2": bz2.open}
        opener = openers.get(name.rpartition(".")[2])
        stream = opener(packed) if opener else packed
    try:
        yield _Bounded(stream, url)  # type: ignore[misc]
    except (lzma.LZMAError, EOFError, zlib.error, gzip.BadGzipFile, OSError) as error:
        raise RepositoryError(f"{url} cannot be unpacked: {error}") from error
    finally:
        if program is not None:
            program.kill()
            program.communicate()


class _Bounded:
    """Reads a stream up to a size limit."""

    def __init__(self, stream: IO[bytes], url: str) -> None:
        self._stream, self._url, self._left = stream, url, MAX_PLAIN_BYTES

    def read(self, size: int = -1) -> bytes:
        return self._counted(self._stream.read(_PIECE_BYTES if size < 0 else min(size, _PIECE_BYTES)))

    def readline(self) -> bytes:
        line = self._counted(self._stream.readline(_MAX_LINE_BYTES))
        while line and not line.endswith(b"\n") and (rest := self._counted(self._stream.readline(_MAX_LINE_BYTES))):
            # Skip the rest of a line that is too long for any field.
            if rest.endswith(b"\n"):
                break
        return line

    def _counted(self, piece: bytes) -> bytes:
        self._left -= len(piece)
        if self._left < 0:
            raise RepositoryError(f"{self._url} is longer than {MAX_PLAIN_BYTES >> 20} MiB once unpacked")
        return piece


def _debian_packages(plain: IO[bytes], root: str) -> Iterator[ListedPackage]:
    """Read paragraphs of `NAME: VALUE` (Debian policy, 5.1); keep the first line of values with several lines."""
    fields: dict[str, str] = {}
    while True:
        line = plain.readline()
        text = line.decode(errors="replace").rstrip("\n")
        if text.strip():
            name, colon, value = text.partition(":")
            if colon and not text[0].isspace():
                fields[name.lower()] = value.strip()[:1000]
            continue
        if fields:
            if (listed := _debian_package(fields, root)) is not None:
                yield listed
            fields = {}
        if not line:
            return


def _debian_package(fields: dict[str, str], root: str) -> ListedPackage | None:
    full = fields.get("version", "")
    name, arch, file, sha256 = (fields.get(each, "") for each in ("package", "architecture", "filename", "sha256"))
    if not (name and full and arch and file and sha256):
        return None
    version, _, release = full.rpartition("-") if "-" in full else (full, "", "")
    size = int(fields["size"]) if fields.get("size", "").isdecimal() else 0
    return ListedPackage(*("deb", *_cut(name, version.rpartition(":")[2], release, arch, full)), urljoin(root, file), size, sha256)


def _rpm_package(element: ElementTree.Element, root: str) -> ListedPackage | None:
    def text(name: str) -> str:
        return (element.findtext(f"{_COMMON}{name}") or "").strip()

    version, checksum = element.find(f"{_COMMON}version"), element.find(f"{_COMMON}checksum")
    location, size = element.find(f"{_COMMON}location"), element.find(f"{_COMMON}size")
    if version is None or location is None or checksum is None or checksum.get("type") != "sha256" or text("arch") == "src":
        return None
    epoch, number, release = (version.get(each, "") for each in ("epoch", "ver", "rel"))
    full = f"{epoch}:" * (epoch not in ("", "0")) + f"{number}-{release}"
    digits = size.get("package", "") if size is not None else ""
    return ListedPackage(
        *("rpm", *_cut(text("name"), number, release, text("arch"), full)),
        urljoin(root, location.get("href", "")),
        int(digits) if digits.isdecimal() else 0,
        (checksum.text or "").strip(),
    )


def _cut(*texts: str) -> tuple[str, str, str, str, str]:
    name, version, release, arch, full = (text[:_MAX_FIELD_CHARACTERS] for text in texts)
    return name, version, release, arch, full


def _elements(plain: IO[bytes], tag: str) -> Iterator[ElementTree.Element]:
    try:
        yield from elements(iter(partial(plain.read, _PIECE_BYTES), b""), tag)
    except ValueError as error:
        raise RepositoryError(f"the index cannot be read: {error}") from error
