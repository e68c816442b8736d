"""Small files of /proc and /sys of a host, many at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ringroad_lab.errors import LabError
from ringroad_lab.host.interface import Host

UNKNOWN = "unknown"


def read_files(host: Host, patterns: Sequence[str]) -> dict[str, str]:
    """Return what is in the files that match shell patterns, by path, in one command; files that cannot be read are not there.

    Patterns are parts of a shell command: never what a user wrote.

    Raises:
        HostError: the host cannot be reached.
    """
    # Every line comes after its path; grep is silent about files that cannot be read, and -I leaves binary ones out.
    said = host.run(["sh", "-c", f"exec grep -sIH '' {' '.join(patterns)}"], check=False)
    files: dict[str, list[str]] = {}
    for line in said.stdout.splitlines():
        # A path with a colon in it, as those with PCI addresses, would be cut: no pattern is to match one.
        path, colon, text = line.partition(":")
        if colon:
            files.setdefault(path, []).append(text)
    return {path: "\n".join(lines).strip() for path, lines in files.items()}


def read_first(host: Host, argv: Sequence[str]) -> str:
    """Return the first line that a command says, or that it is unknown where that fails."""
    try:
        said = host.run(argv, check=False, timeout_s=10.0)
    except LabError:
        return UNKNOWN
    lines = said.stdout.strip().splitlines()
    return lines[0].strip() if said.status == 0 and lines else UNKNOWN


def fact(files: Mapping[str, str], path: str) -> str:
    """Return what a file says, or that it is unknown."""
    return files.get(path) or UNKNOWN


def same_or_each(values: Mapping[str, str]) -> str:
    """Write values of several things: once where all are alike, else each by its name."""
    if not values:
        return UNKNOWN
    if len(set(values.values())) == 1:
        return next(iter(values.values()))
    return ", ".join(f"{name}: {value}" for name, value in sorted(values.items()))
