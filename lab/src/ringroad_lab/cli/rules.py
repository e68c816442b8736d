"""`ringroad-lab rules check`, and the option of all verbs that use rules."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringroad_lab.cli.list_scenarios import print_table
from ringroad_lab.cli.scenario_options import AsJson, resolve_arguments
from ringroad_lab.errors import ScenarioError
from ringroad_lab.fleet.engine.job_environment import FLEET_VARIABLE
from ringroad_lab.request.message import MAX_PAYLOAD_BYTES, Message

if TYPE_CHECKING:
    from ringroad_lab.fleet.rules import MessageRule
    from ringroad_lab.request.model import Wanted

# The environment variable names the file for the runs that a dispatcher starts.
FleetFile = Annotated[
    Path | None,
    typer.Option(
        "--fleet",
        metavar="FILE",
        envvar=FLEET_VARIABLE,
        help="Sources, rules and beds.",
        show_default="fleet.toml in the settings folder, if it exists",
    ),
]


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The fleet.toml to check.", show_default=False)],
    message: Annotated[Path | None, typer.Option(metavar="FILE", help="Show the requests that this message (JSON) would make.")] = None,
    source: Annotated[str, typer.Option(metavar="NAME", help="Source of the message.")] = "command-line",
    event: Annotated[str, typer.Option(metavar="NAME", help="The source's name for the kind of message: push, release, ...")] = "",
    as_json: AsJson = False,
) -> None:
    """Check rules, and show the requests that a message would make; nothing is requested."""
    from ringroad_lab.fleet.rules import apply_rules
    from ringroad_lab.fleet.settings import read_fleet

    settings = read_fleet(file)
    for rule in settings.rules:
        _check_scenario(rule)
    if message is None:
        text = f"{file}: {len(settings.rules)} rules, {len(settings.sources)} sources"
        typer.echo(json.dumps({"rules": len(settings.rules), "sources": sorted(settings.sources)}, indent=2) if as_json else text)
        return
    found = apply_rules(settings.rules, Message(source, _read(message), time.time(), event))
    if as_json:
        typer.echo(json.dumps([each.model_dump(mode="json") for each in found], indent=2))
    elif found:
        print_table([_row(each) for each in found])
    else:
        typer.echo("no rule matches: the message would be counted, and make no request")


def _check_scenario(rule: MessageRule) -> None:
    """Resolve the scenario of a rule; settings that contain a field of the message are left out."""
    from ringroad_lab.scenario.toml_text import toml_text

    fixed = [line for line in toml_text(rule.settings).splitlines() if "{" not in line]
    try:
        resolve_arguments(rule.scenario, rule.layers, fixed)
    except ScenarioError as error:
        raise ScenarioError(f"rule '{rule.name}': {error}") from error


def _read(message: Path) -> bytes:
    try:
        with message.open("rb") as file:
            payload = file.read(MAX_PAYLOAD_BYTES + 1)
    except OSError as error:
        raise ScenarioError(f"{message}: {error.strerror}") from error
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ScenarioError(f"{message}: longer than {MAX_PAYLOAD_BYTES} bytes, the limit for a message")
    return payload


def _row(wanted: Wanted) -> dict[str, str]:
    order = wanted.order
    return {
        "build": wanted.build,
        "scenario": wanted.scenario,
        "bed": wanted.bed_class,
        "layers": ", ".join(order.layers),
        "settings": ", ".join(order.settings),
        "labels": ", ".join(f"{name}={value}" for name, value in order.labels.items()),
        "baseline": order.baseline,
        "owner": wanted.owner,
        "priority": str(wanted.priority),
        "package and tag": " ".join(filter(None, (wanted.package, wanted.tag))),
    }


VERBS = typer.Typer(help="Rules that turn messages about builds into requests.", no_args_is_help=True)
VERBS.callback()(lambda: None)
VERBS.command("check")(check)
