"""`ringroad-lab list`."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from ringroad_lab.cli.scenario_options import AsJson
from ringroad_lab.errors import PluginError
from ringroad_lab.kinds import CABLES, DUTS, ENGINES, GENERATORS, GUESTS, METHODS, NOTIFIERS, REPORTERS, SOURCES, Kinds
from ringroad_lab.report.plain_text import printable
from ringroad_lab.scenario.library import Library
from ringroad_lab.scenario.overview import summaries

T = TypeVar("T")


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


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command("list")
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


def print_table(rows: list[dict[str, str]]) -> None:
    """Print rows as a table; the first column is never cut."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(rows[0] if rows else ()):
        table.add_column(name, no_wrap=number == 0)
    for row in rows:
        table.add_row(*map(printable, row.values()))
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
    return _KINDS[kind]()


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


_STAND_IN = "stand-in: a program in place of a virtual machine"
_KINDS: dict[ListedKind, Callable[[], list[dict[str, str]]]] = {
    ListedKind.DEVICES: lambda: _kinds(DUTS, "driver", lambda dut: {"title": dut.title, "cables": ", ".join(sorted(dut.carries))}),
    ListedKind.GUESTS: lambda: _kinds(
        GUESTS,
        "guest",
        lambda guest: {"kind": _STAND_IN if guest.is_stand_in else "virtual machine", "cables": ", ".join(sorted(guest.carries))},
        broken="kind",
    ),
    ListedKind.METHODS: lambda: _kinds(METHODS, "method", lambda method: {"title": method.title}, is_sorted=False),
    ListedKind.CABLES: lambda: _kinds(CABLES, "cable", lambda cable: {"title": cable.title}),
    ListedKind.GENERATORS: lambda: _kinds(GENERATORS, "generator", lambda generator: {"title": generator.title}),
    ListedKind.REPORTS: lambda: _kinds(REPORTERS, "form", lambda reporter: {"title": reporter.title}),
    ListedKind.ENGINES: lambda: _kinds(ENGINES, "engine", lambda engine: {"title": engine.title}),
    ListedKind.SOURCES: lambda: _kinds(SOURCES, "kind", lambda source: {"title": source.title}),
    ListedKind.NOTIFIERS: lambda: _kinds(NOTIFIERS, "kind", lambda notifier: {"title": notifier.title}),
}
