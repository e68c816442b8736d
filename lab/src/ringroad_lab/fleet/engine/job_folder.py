"""The folder in which an engine keeps the output of its jobs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ringroad_lab.errors import LabError

LAST_WORDS_BYTES = 3000
KEPT_JOBS = 500


def make_job_folder(folder: Path, remedy: str = "choose another folder with --jobs") -> None:
    """Create the folder if it does not exist.

    Raises:
        LabError: the folder cannot be created; the message contains the remedy.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{folder}: {error.strerror}; {remedy}") from error


def last_words(file: Path) -> str:
    """Return the end of a job's output; empty if it cannot be read."""
    try:
        with file.open("rb") as output:
            output.seek(max(0, output.seek(0, os.SEEK_END) - LAST_WORDS_BYTES))
            return output.read().decode(errors="replace").strip()
    except OSError:
        return ""


def all_but_newest(paths: Iterable[Path], kept: int) -> list[Path]:
    """Return all paths except the `kept` newest, oldest first."""
    return sorted(paths, key=lambda path: path.stat().st_mtime)[:-kept]
