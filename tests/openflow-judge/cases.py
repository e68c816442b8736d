"""The cases of os-ken's switch tester: which there are, of what kind they are, and which of them a run takes."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

KINDS = ("match", "action", "set_field", "group all", "group select", "meter")
"""The kinds of case, in the order of reports."""

# The fields that every switch has to match (OpenFlow 1.3.5, 7.2.3.7), and the cases of required actions and groups.
_REQUIRED_FIELDS = {
    *("IN_PORT", "ETH_DST", "ETH_SRC", "ETH_TYPE", "IP_PROTO", "IPV4_SRC", "IPV4_DST", "IPV6_SRC", "IPV6_DST"),
    *("TCP_SRC", "TCP_DST", "UDP_SRC", "UDP_DST"),
}
_REQUIRED_TITLES = {"action: 00_OUTPUT", "group: 00_ALL"}
# To look behind these headers a switch needs fields and actions that are optional.
_TAGS = {"vlan", "svlan", "mpls", "itag"}


@dataclass(frozen=True)
class Case:
    """One case of the tester."""

    title: str
    """What the tester calls the file, such as `match: 13_TCP_SRC (IPv4)`."""
    description: str
    """The case in the file: packet and flow entry."""
    content: dict[str, Any]

    @property
    def name(self) -> str:
        """Name that no other case has."""
        return f"{self.title} | {self.description}"

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        kind, rest = self.title.split(": ", 1)
        if rest.startswith("set_field"):
            return "set_field"
        if kind == "group":
            return "group all" if rest == "00_ALL" else "group select"
        return kind

    @property
    def is_required(self) -> bool:
        """Whether OpenFlow 1.3 demands of every switch what the case needs."""
        if self.title in _REQUIRED_TITLES:
            return True
        field = re.match(r"match: \d+_(\w+)", self.title)
        headers = set(re.findall(r"\w+", self.description.split("-->")[0]))
        return field is not None and field[1] in _REQUIRED_FIELDS and not headers & _TAGS

    @property
    def needs_rates(self) -> bool:
        """Whether the tester's own sender is too slow for it."""
        return self.kind in ("group select", "meter")

    @property
    def is_in_tenth(self) -> bool:
        """Whether it belongs to the tenth, in which a checksum takes every kind, header and outcome about equally."""
        return self.kind == "group all" or (not self.needs_rates and zlib.crc32(self.name.encode()) % 10 == 0)


def all_cases() -> list[Case]:
    """Return the cases of OpenFlow 1.3 that come with os-ken, in the tester's order."""
    spec = find_spec("os_ken")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "tests" / "switch" / "of13"
    cases = []
    for file in folder.rglob("*.json"):
        title, *contents = json.loads(file.read_text())
        cases += [Case(title, content["description"], content) for content in contents]
    return sorted(cases, key=lambda case: case.title)


def write_cases(cases: Sequence[Case], folder: Path) -> None:
    """Write cases as the tester reads them: a file for each title."""
    folder.mkdir()
    for number, (title, members) in enumerate(groupby(cases, key=lambda case: case.title)):
        (folder / f"{number:03}.json").write_text(json.dumps([title, *(case.content for case in members)]))


def read_known_failures(file: Path, cases: Iterable[Case]) -> dict[str, str]:
    """Return the tester's results for the cases that are known to fail, by name.

    Raises:
        ValueError: a line is not a `TITLE | DESCRIPTION | DETAIL`, or its case does not exist.
    """
    names = {case.name for case in cases}
    details = {}
    for line in file.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, detail = line.rpartition(" | ")
            if name not in names or not detail:
                raise ValueError(f"{file}: no case with this result of the tester: {line}")
            details[name] = detail
    return details
