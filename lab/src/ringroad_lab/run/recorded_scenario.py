"""The scenarios of a run, as its record has them: what a run is resumed by."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter, ValidationError

from ringroad_lab.errors import ScenarioError, value_problems
from ringroad_lab.record import JsonObject, RunRecord
from ringroad_lab.scenario.model import Scenario

_SCENARIOS = TypeAdapter(tuple[Scenario, ...])


def described(scenarios: Sequence[Scenario], looks: int) -> JsonObject:
    """Return scenarios as a record has them; `looks` is how often a run that goes on until it is decided is looked at, 0 for others."""
    told: JsonObject = {"scenarios": [each.model_dump(mode="json") for each in scenarios]}
    return told | {"looks": looks} if looks else told


def scenarios_of(record: RunRecord) -> tuple[Scenario, ...]:
    """Return the scenarios that a run was made of.

    Raises:
        ScenarioError: they cannot be read; the run was made by another program.
    """
    try:
        scenarios = _SCENARIOS.validate_python(record.scenario.get("scenarios", []))
    except ValidationError as error:
        raise ScenarioError(f"the scenario of run {record.run_id} cannot be read: {'; '.join(value_problems(error))}") from error
    if not scenarios:
        raise ScenarioError(f"run {record.run_id} has no scenario: it cannot be resumed")
    return scenarios
