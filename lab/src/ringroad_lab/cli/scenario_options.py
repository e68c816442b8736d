"""Options of all verbs that take a scenario."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from ringroad_lab.errors import ScenarioError
from ringroad_lab.fleet.inventory import BedSettings
from ringroad_lab.scenario.layers import command_line_layers
from ringroad_lab.scenario.library import Library
from ringroad_lab.scenario.resolve import ResolvedScenario, resolve


def complete_scenario(incomplete: str) -> list[str]:
    """Return the scenarios whose names begin with the text."""
    return [name for name in Library.of_this_machine().scenario_files() if name.startswith(incomplete)]


def _complete_layer(incomplete: str) -> list[str]:
    return [name for name in Library.of_this_machine().profiles() if name.startswith(incomplete)]


ScenarioName = Annotated[
    str, typer.Argument(metavar="SCENARIO", help="Name of a scenario, or a file.", autocompletion=complete_scenario, show_default=False)
]
LayerNames = Annotated[
    list[str] | None,
    typer.Option(
        "--layer",
        "-l",
        metavar="NAME|FILE",
        help="Profile or file to lay over the scenario; can be repeated.",
        autocompletion=_complete_layer,
    ),
]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", "-s", metavar="KEY.PATH=VALUE", help="Set one setting, above all layers; can be repeated.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def read_labels(texts: Sequence[str] | None) -> dict[str, str]:
    """Return the labels of `--label` arguments; raise ScenarioError if one is not NAME=VALUE."""
    labels = {}
    for text in texts or ():
        name, is_pair, value = text.partition("=")
        if not is_pair or not name.strip():
            raise ScenarioError(f"label {text!r}: write NAME=VALUE")
        labels[name.strip()] = value.strip()
    return labels


def resolve_arguments(
    name: str, layers: Sequence[str] | None, assignments: Sequence[str] | None, bed: BedSettings | None = None
) -> ResolvedScenario:
    """Resolve the scenario of the command line for this machine; its layers go above the layers of the run's bed.

    Raises:
        ScenarioError: with all problems together.
    """
    library = Library.of_this_machine()
    above = [*(library.user_layer(layer) for layer in bed.layers), *command_line_layers(bed.settings)] if bed else []
    above += [*(library.user_layer(layer) for layer in layers or ()), *command_line_layers(assignments or ())]
    return resolve(library, name, above, online_cpus=frozenset(os.sched_getaffinity(0)))
