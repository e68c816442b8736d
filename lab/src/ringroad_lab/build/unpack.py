"""Unpacks packages and images of others: without privileges, in a file system where nothing but the build can be named."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Literal

from ringroad_lab.errors import HostError, MissingProgramError
from ringroad_lab.host.interface import Host

MAX_BYTES = 8 << 30
"""Limit of a build's archives together, decompressed."""
MAX_FILES = 500_000
# Time limit that is enough for images of several gigabytes.
TIMEOUT_S = 900.0
_NO_SKOPEO = 127
_CONFINE, _UNPACK = (Path(__file__).with_name(name) for name in ("confine.sh", "unpack.sh"))


class Unpacker:
    """Unpacks files into one folder. All of its content belongs to the user of the lab, and no other user can change it."""

    def __init__(self, host: Host, root: Path, *, max_bytes: int = MAX_BYTES, max_files: int = MAX_FILES) -> None:
        """Take the empty folder `root`, whose parent is closed to other users."""
        self._host = host
        self._root = root
        self._left_bytes, self._left_files = max_bytes, max_files
        self._scripts: list[str] = []
        for script in (_CONFINE, _UNPACK):
            copy = PurePosixPath(root.parent / script.name)
            host.write_text(copy, script.read_text(encoding="utf-8"))
            self._scripts.append(str(copy))

    def unpack(self, kind: Literal["deb", "rpm", "image"], source: Path, *arguments: str) -> str:
        """Unpack a file or folder that no other user can change; return the name of its content.

        Raises:
            HostError: it is damaged, or too much for a build.
            MissingProgramError: it is an image, and skopeo is not installed.
        """
        scratch = self._root.parent / "scratch"
        scratch.mkdir()
        confine, unpack = self._scripts
        argv = ["sh", confine, str(source), str(self._root), str(scratch), str(self._left_bytes), unpack, str(self._left_files), kind]
        try:
            done = self._host.run([*argv, *arguments], timeout_s=TIMEOUT_S, check=False)
        finally:
            self._host.run(["rm", "-rf", "--", str(scratch)], timeout_s=TIMEOUT_S)
        if done.status == _NO_SKOPEO:
            raise MissingProgramError("skopeo", "skopeo", self._host.name)
        if done.status:
            why = done.stderr.strip()[-2000:] or f"status {done.status}, and no output"
            raise HostError(f"{source.name} cannot be unpacked: {why}")
        content, *_, took = done.stdout.splitlines()
        took_bytes, took_files = map(int, took.split())
        self._left_bytes -= took_bytes
        self._left_files -= took_files
        return content


def own_copy(host: Host, path: Path, folder: Path) -> Path:
    """Copy a file or folder into a folder that is closed to other users, so that nobody changes it between two readers; return the copy.

    Raises:
        HostError: it cannot be copied.
    """
    if not (path.is_file() or path.is_dir()):
        raise HostError(f"{path} is neither a file nor a folder")
    copy = folder / path.name
    host.run(["cp", "--recursive", "-H", "--reflink=auto", "--", str(path), str(copy)], timeout_s=TIMEOUT_S)
    return copy
