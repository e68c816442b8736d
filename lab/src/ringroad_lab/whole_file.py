"""Writes files atomically: readers never see a partial file."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def write_whole(file: Path, text: str) -> None:
    """Write a text file atomically; after a failure the previous file is still there.

    Raises:
        OSError: it cannot be written.
    """
    unfinished = file.with_name(f".ringroad-lab-{uuid.uuid4().hex}.unfinished")
    try:
        with unfinished.open("w", encoding="utf-8", errors="replace") as output:
            output.write(text)
            output.flush()
            os.fsync(output.fileno())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
