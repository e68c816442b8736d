"""The folder in which an engine keeps what its jobs say."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ringroad_lab.errors import LabError

LAST_WORDS_BYTES = 3000
KEPT_JOBS = 500


def make_job_folder(folder: Path, remedy: str = "--jobs names another folder") -> None:
    """Make the folder, unless it is there.

    Raises:
        LabError: it cannot be made; the remedy stands in it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{folder}: {error.strerror}; {remedy}") from error


def last_words(file: Path) -> str:
    """Return the end of what a job said; empty where that cannot be read."""
    try:
        with file.open("rb") as output:
            output.seek(max(0, output.seek(0, os.SEEK_END) - LAST_WORDS_BYTES))
            return output.read().decode(errors="replace").strip()
    except OSError:
        return ""


def all_but_newest(paths: Iterable[Path], kept: int) -> list[Path]:
    """Return the paths that are not among the newest, the oldest first."""
    return sorted(paths, key=lambda path: path.stat().st_mtime)[:-kept]
