"""`ringroad-lab list`."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ringroad_lab.cli.scenario_options import AsJson
from ringroad_lab.report.plain_text import printable
from ringroad_lab.scenario.library import Library
from ringroad_lab.scenario.overview import summaries
from ringroad_lab.scenario.registries import Registries


class Kind(StrEnum):
    """What can be listed."""

    SCENARIOS = "scenarios"
    LAYERS = "layers"
    DEVICES = "devices"
    GUESTS = "guests"
    METHODS = "methods"


def register(app: typer.Typer) -> None:
    """Add the verb."""

    @app.command("list")
    def list_(
        kind: Annotated[Kind, typer.Argument(help="What to list.")] = Kind.SCENARIOS,
        as_json: AsJson = False,
    ) -> None:
        """List the scenarios, or what they are made of."""
        rows = _rows(kind)
        if as_json:
            print(json.dumps(rows, indent=2))
        else:
            print_table(rows)


def print_table(rows: list[dict[str, str]]) -> None:
    """Print rows as a table, whose first column is never cut."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(rows[0] if rows else ()):
        table.add_column(name, no_wrap=number == 0)
    for row in rows:
        table.add_row(*map(printable, row.values()))
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        # What reads it takes lines as they are.
        console.width = 10_000
    console.print(table)


def _rows(kind: Kind) -> list[dict[str, str]]:
    if kind is Kind.SCENARIOS:
        return [
            {
                "scenario": summary.name,
                "topologies": ", ".join(summary.topologies),
                "devices": ", ".join(summary.duts),
                "title": summary.title if not summary.problem else f"cannot be used: {' '.join(summary.problem.split())}",
            }
            for summary in summaries(Library.of_this_machine())
        ]
    if kind is Kind.LAYERS:
        return [{"layer": name, "file": str(path)} for name, path in Library.of_this_machine().profiles().items()]
    registries = Registries.load()
    if kind is Kind.DEVICES:
        return [
            {"driver": name, "title": dut.title, "cables": ", ".join(sorted(dut.carries))} for name, dut in sorted(registries.duts.items())
        ]
    if kind is Kind.GUESTS:
        return [
            {
                "guest": name,
                "kind": "stand-in: a program in place of a virtual machine" if guest.is_stand_in else "virtual machine",
                "cables": ", ".join(sorted(guest.carries)),
            }
            for name, guest in sorted(registries.guests.items())
        ]
    return [{"method": name, "title": method.title} for name, method in registries.methods.items()]
