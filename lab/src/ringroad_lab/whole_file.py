"""Files that are there whole or not at all: who looks sees no half of one."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def write_whole(file: Path, text: str) -> None:
    """Write a text file in place of what is there; after a failure that is still there.

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
