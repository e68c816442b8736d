"""`ringroad-lab list`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from ringroad_lab.cli.scenario_options import AsJson
from ringroad_lab.errors import PluginError
from ringroad_lab.kinds import Kinds
from ringroad_lab.report.plain_text import printable
from ringroad_lab.scenario.library import Library
from ringroad_lab.scenario.overview import summaries

T = TypeVar("T")

_STAND_IN = "stand-in: a program in place of a virtual machine"


class ListedKind(StrEnum):
    """Kinds of entries to list."""

    SCENARIOS = "scenarios"
    LAYERS = "layers"
    DEVICES = "devices"
    GUESTS = "guests"
    METHODS = "methods"
    CABLES = "cables"
    GENERATORS = "generators"
    REPORTS = "reports"
    ENGINES = "engines"
    SOURCES = "sources"
    NOTIFIERS = "notifiers"


def list_(
    kind: Annotated[ListedKind, typer.Argument(help="What to list.")] = ListedKind.SCENARIOS,
    as_json: AsJson = False,
) -> None:
    """List the scenarios, or the parts that they are made of."""
    rows = _rows(kind)
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        print_table(rows)


def print_table(rows: Sequence[Mapping[str, str]]) -> None:
    """Print rows with equal keys, which are the titles."""
    print_rows(tuple(rows[0]) if rows else (), [tuple(row.values()) for row in rows])


def print_rows(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; its first column is never wrapped."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, title in enumerate(titles):
        table.add_column(title, no_wrap=number == 0)
    for row in rows:
        table.add_row(*map(printable, row))
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        # Programs read whole lines: do not wrap them.
        console.width = 10_000
    console.print(table)


def _rows(kind: ListedKind) -> list[dict[str, str]]:
    if kind is ListedKind.SCENARIOS:
        return [
            {
                "scenario": summary.name,
                "topologies": ", ".join(summary.topologies),
                "devices": ", ".join(summary.duts),
                "title": summary.title if not summary.problem else f"cannot be used: {' '.join(summary.problem.split())}",
            }
            for summary in summaries(Library.of_this_machine())
        ]
    if kind is ListedKind.LAYERS:
        return [{"layer": name, "file": str(path)} for name, path in Library.of_this_machine().profiles().items()]
    return _rows_of_classes(kind)


def _rows_of_classes(kind: ListedKind) -> list[dict[str, str]]:
    # Imported here: the other verbs need few of these interfaces.
    from ringroad_lab.cable.interface import CABLES
    from ringroad_lab.dut.interface import DUTS
    from ringroad_lab.fleet.engine.interface import ENGINES
    from ringroad_lab.fleet.sources.interface import SOURCES
    from ringroad_lab.generator.interface import GENERATORS
    from ringroad_lab.guest.interface import GUESTS
    from ringroad_lab.method.interface import METHODS
    from ringroad_lab.notification.interface import NOTIFIERS
    from ringroad_lab.report.interface import REPORTERS

    match kind:
        case ListedKind.DEVICES:
            return _kinds(DUTS, "driver", lambda dut: {"title": dut.title, "cables": ", ".join(sorted(dut.carries))})
        case ListedKind.GUESTS:
            return _kinds(
                GUESTS,
                "guest",
                lambda guest: {"kind": _STAND_IN if guest.is_stand_in else "virtual machine", "cables": ", ".join(sorted(guest.carries))},
                broken="kind",
            )
        case ListedKind.METHODS:
            return _kinds(METHODS, "method", lambda method: {"title": method.title}, is_sorted=False)
        case ListedKind.CABLES:
            return _kinds(CABLES, "cable", lambda cable: {"title": cable.title})
        case ListedKind.GENERATORS:
            return _kinds(GENERATORS, "generator", lambda generator: {"title": generator.title})
        case ListedKind.REPORTS:
            return _kinds(REPORTERS, "form", lambda reporter: {"title": reporter.title})
        case ListedKind.ENGINES:
            return _kinds(ENGINES, "engine", lambda engine: {"title": engine.title})
        case ListedKind.SOURCES:
            return _kinds(SOURCES, "kind", lambda source: {"title": source.title})
        case _:
            return _kinds(NOTIFIERS, "kind", lambda notifier: {"title": notifier.title})


def _kinds(
    kinds: Kinds[T], column: str, describe: Callable[[type[T]], dict[str, str]], *, broken: str = "title", is_sorted: bool = True
) -> list[dict[str, str]]:
    """Return a row for each kind, with its package; for a kind that cannot be loaded, with the reason."""
    rows = []
    for name, found in (sorted if is_sorted else list)(kinds.loadable().items()):
        cells = {broken: f"cannot be used: {found}"} if isinstance(found, PluginError) else describe(found)
        rows.append({column: name, **cells, "package": kinds.package(name)})
    names = list(dict.fromkeys(key for row in rows for key in row))
    return [{name: row.get(name, "") for name in names} for row in rows]
