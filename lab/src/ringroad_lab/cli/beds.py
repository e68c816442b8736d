"""`ringroad-lab beds`: the beds of the fleet, and their quarantine."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ringroad_lab.cli.list_scenarios import print_table
from ringroad_lab.cli.request import ACTOR
from ringroad_lab.cli.rules import FleetFile
from ringroad_lab.cli.scenario_options import AsJson
from ringroad_lab.cli.store_options import StoreOption, open_store
from ringroad_lab.errors import ScenarioError
from ringroad_lab.report.quantity import duration

if TYPE_CHECKING:
    from ringroad_lab.fleet.bed_overview import BedLine

BedArgument = Annotated[str, typer.Argument(metavar="NAME", help="NAME of [bed.NAME] in fleet.toml.", show_default=False)]


def beds(context: typer.Context, fleet: FleetFile = None, store: StoreOption = None, as_json: AsJson = False) -> None:
    """List the beds: the run on each bed, its use in the last week, and how long requests waited for it."""
    if context.invoked_subcommand is not None:
        return
    from ringroad_lab.fleet.bed_overview import overview
    from ringroad_lab.fleet.settings import load_fleet

    with open_store(store) as results:
        found = overview(results, load_fleet(fleet).beds, time.time())
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2))
        return
    print_table([_row(line) for line in found.beds])
    for bed_class, scenario, reason in found.obstacles:
        print(f"requests for class {bed_class}, {scenario} wait: {reason}", file=sys.stderr)


def release(
    name: BedArgument,
    forget_calibrations: Annotated[
        bool, typer.Option("--forget-calibrations", help="The bed was changed: do not compare its next calibrations with earlier ones.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Take a bed out of quarantine."""
    from ringroad_lab.fleet.bed_leases import BedLeases

    with open_store(store) as results:
        BedLeases(results).release(name, forget_calibrations=forget_calibrations)
    typer.echo(f"bed {name}: released")


def quarantine(
    name: BedArgument,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="The reason, for the people who maintain the bed.", show_default=False)],
    fleet: FleetFile = None,
    store: StoreOption = None,
) -> None:
    """Put a bed into quarantine: no run starts on the bed until it is released. A run that already has the bed continues."""
    from ringroad_lab.fleet.bed_leases import BedLeases
    from ringroad_lab.fleet.settings import load_fleet
    from ringroad_lab.scenario.near_miss import suggest

    known = load_fleet(fleet).beds
    if name not in known:
        raise ScenarioError(f"there is no bed '{name}' in fleet.toml{suggest(name, known)}")
    if not reason.strip():
        raise ScenarioError("--reason is empty: give the reason, for the people who maintain the bed")
    with open_store(store) as results:
        BedLeases(results).quarantine(name, reason.strip(), ACTOR)
    typer.echo(f"bed {name}: in quarantine; `ringroad-lab beds release {name}` releases it")


def _row(line: BedLine) -> dict[str, str]:
    occupancy = line.state.occupancy
    return {
        "bed": line.name,
        "class": line.bed_class,
        "machines": ", ".join(f"{role} {name}" for role, name in line.machines.items()),
        "state": line.word,
        "run": occupancy.run_id[:8] if occupancy else "",
        "request": str(occupancy.request_id or "") if occupancy else "",
        "for": duration(time.time() - occupancy.taken_at, decimals=0) if occupancy else "",
        "occupied": f"{100 * line.occupied:.0f} %",
        "median wait": _time(line.waits.median_s),
        "longest wait": _time(line.waits.longest_s),
        "quarantine": line.state.quarantine.strip().rpartition("\n")[2][:200],
    }


def _time(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds, decimals=0)


VERBS = typer.Typer()
VERBS.callback(invoke_without_command=True)(beds)
VERBS.command()(release)
VERBS.command()(quarantine)
