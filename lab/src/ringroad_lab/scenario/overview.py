"""A short list of all scenarios."""

from __future__ import annotations

from dataclasses import dataclass

from ringroad_lab.errors import ScenarioError
from ringroad_lab.scenario.layers import merge
from ringroad_lab.scenario.library import Library
from ringroad_lab.scenario.resolve import check_table


@dataclass(frozen=True)
class ScenarioSummary:
    """The content of a scenario's own file."""

    name: str
    title: str
    topologies: tuple[str, ...]
    duts: tuple[str, ...]
    source: str
    problem: str = ""
    """Reason why the scenario cannot be used; the other fields are then empty."""


def summaries(library: Library) -> list[ScenarioSummary]:
    """Return all scenarios by name. An invalid scenario does not hide the others."""
    found = []
    for name, path in sorted(library.scenario_files().items()):
        try:
            table = check_table(name, merge([library.defaults(), library.scenario_layer(path)]))
        except ScenarioError as error:
            found.append(ScenarioSummary(name, "", (), (), str(path), str(error)))
        else:
            found.append(ScenarioSummary(name, table.title, tuple(map(str, table.topologies)), table.duts, str(path)))
    return found
