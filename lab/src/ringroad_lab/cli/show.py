"""`ringroad-lab show`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ringroad_lab.cli.scenario_options import AsJson, Assignments, LayerNames, ScenarioName, resolve_arguments
from ringroad_lab.report.plain_text import printable
from ringroad_lab.scenario.document import path_text
from ringroad_lab.scenario.resolve import ResolvedScenario, ResolvedTopology
from ringroad_lab.scenario.schema import ScenarioTable
from ringroad_lab.scenario.toml_text import toml_text


def show(
    scenario: ScenarioName,
    layer: LayerNames = None,
    set_: Assignments = None,
    origin: Annotated[bool, typer.Option("--origin", help="Show which layer each setting is from.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a scenario with all its layers merged, as TOML that can be used as a file."""
    resolved = resolve_arguments(scenario, layer, set_)
    for warning in resolved.warnings:
        typer.echo(f"ringroad-lab: warning: {printable(warning)}", err=True)
    print(_json(resolved) if as_json else _text(resolved, origin), end="\n" if as_json else "")


def _json(resolved: ResolvedScenario) -> str:
    return json.dumps(
        {
            "name": resolved.name,
            "title": resolved.title,
            "warnings": resolved.warnings,
            "topologies": [
                {
                    "scenario": topology.scenario.model_dump(mode="json"),
                    "settings": topology.merged.tree,
                    "origins": {path_text(path): str(origin) for path, origin in topology.merged.origins.items()},
                }
                for topology in resolved.topologies
            ],
        },
        indent=2,
    )


def _text(resolved: ResolvedScenario, with_origin: bool) -> str:
    # Print the settings once if all topologies have the same.
    texts = {str(topology.scenario.topology): _one(topology, with_origin) for topology in resolved.topologies}
    if len(set(texts.values())) == 1:
        return f"# {resolved.name}\n{next(iter(texts.values()))}"
    return "\n".join(f"# {resolved.name}, {name}\n{text}" for name, text in texts.items())


def _one(topology: ResolvedTopology, with_origin: bool) -> str:
    merged = topology.merged
    # The order is that of the schema, whatever layer the settings come from.
    tree = {key: merged.tree[key] for key in ScenarioTable.model_fields if key in merged.tree}
    return toml_text(tree, (lambda path: str(merged.origin(path) or "")) if with_origin else None)
