"""Reads many small files of /proc and /sys of a host at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ringroad_lab.errors import LabError
from ringroad_lab.host.interface import Host

UNKNOWN = "unknown"


def read_files(host: Host, patterns: Sequence[str]) -> dict[str, str]:
    """Return the contents of the files that match shell patterns, by path, in one command; skip files that cannot be read.

    Patterns are parts of a shell command: never pass user input.

    Raises:
        HostError: the host cannot be reached.
    """
    # grep prints each line after its path; -s suppresses errors of unreadable files, and -I skips binary files.
    completed = host.run(["sh", "-c", f"exec grep -sIH '' {' '.join(patterns)}"], check=False)
    files: dict[str, list[str]] = {}
    for line in completed.stdout.splitlines():
        # A path with a colon, such as a path with a PCI address, would be cut: patterns must not match such paths.
        path, colon, text = line.partition(":")
        if colon:
            files.setdefault(path, []).append(text)
    return {path: "\n".join(lines).strip() for path, lines in files.items()}


def read_first(host: Host, argv: Sequence[str]) -> str:
    """Return the first line of a command's output, or `unknown` if the command fails."""
    try:
        completed = host.run(argv, check=False, timeout_s=10.0)
    except LabError:
        return UNKNOWN
    lines = completed.stdout.strip().splitlines()
    return lines[0].strip() if completed.status == 0 and lines else UNKNOWN


def fact(files: Mapping[str, str], path: str) -> str:
    """Return the contents of a file, or `unknown`."""
    return files.get(path) or UNKNOWN


def same_or_each(values: Mapping[str, str]) -> str:
    """Format the values of several objects: a single value if all are equal, else each with its name."""
    if not values:
        return UNKNOWN
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    return ", ".join(f"{name}: {value}" for name, value in sorted(values.items()))
