"""The scenarios in the record of a run, from which the run is resumed."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter, ValidationError

from ringroad_lab.errors import ScenarioError, value_problems
from ringroad_lab.record import JsonObject, RunRecord
from ringroad_lab.scenario.model import Scenario

_SCENARIOS = TypeAdapter(tuple[Scenario, ...])


def described(scenarios: Sequence[Scenario], looks: int) -> JsonObject:
    """Return scenarios for a record; `looks` counts the comparisons of a run that continues until it is decided, 0 for other runs."""
    document: JsonObject = {"scenarios": [each.model_dump(mode="json") for each in scenarios]}
    return document | {"looks": looks} if looks else document


def scenarios_of(record: RunRecord) -> tuple[Scenario, ...]:
    """Return the scenarios of a run.

    Raises:
        ScenarioError: they cannot be read; another program made the run.
    """
    try:
        scenarios = _SCENARIOS.validate_python(record.scenario.get("scenarios", []))
    except ValidationError as error:
        raise ScenarioError(f"the scenario of run {record.run_id} cannot be read: {'; '.join(value_problems(error))}") from error
    if not scenarios:
        raise ScenarioError(f"run {record.run_id} has no scenario: it cannot be resumed")
    return scenarios
