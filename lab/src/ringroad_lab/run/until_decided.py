"""A run that continues until it is decided which of two devices is better, or that neither is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringroad_lab.comparison import RunComparison, compare_labels, looks_of
from ringroad_lab.errors import ScenarioError
from ringroad_lab.record import RunRecord, RunState
from ringroad_lab.run.recorded_scenario import described, scenarios_of
from ringroad_lab.scenario.model import Scenario
from ringroad_lab.statistics.sequential import GROWTH

# Default maximum number of pairs, in multiples of the scenario's repetitions.
_MOST_PAIRS = 8


@dataclass(frozen=True)
class UntilDecided:
    """Two devices that are compared until the comparison is decided."""

    baseline: str
    candidate: str
    most_pairs: int

    def compare(self, record: RunRecord) -> RunComparison:
        """Compare the devices with the measurements so far."""
        return compare_labels(record, self.baseline, self.candidate)

    def settle(self, record: RunRecord) -> RunRecord:
        """Return the finished run, or a run that continues with more pairs because its pairs do not decide the comparison."""
        (scenario,) = scenarios_of(record)
        if scenario.repetitions >= self.most_pairs or self.compare(record).is_decided:
            return record
        longer = scenario.model_copy(update={"repetitions": min(GROWTH * scenario.repetitions, self.most_pairs)})
        return record.model_copy(update={"state": RunState.STOPPED, "scenario": described((longer,), looks_of(record) + 1)})


def read_until_decided(labels: str | None, most_pairs: int | None, scenarios: Sequence[Scenario]) -> UntilDecided | None:
    """Read the arguments `--until-decided` and `--most-pairs`.

    Raises:
        ScenarioError: they do not fit the scenario.
    """
    if labels is None:
        if most_pairs is not None:
            raise ScenarioError("--most-pairs is for --until-decided")
        return None
    # Measurements are numbered in their order, so a run can only grow at its end.
    if len(scenarios) > 1 or scenarios[0].noise_floor_pairs:
        raise ScenarioError(
            "--until-decided measures one topology, without noise_floor_pairs: set topologies=[...] and noise_floor_pairs=0"
        )
    known = [dut.label for dut in scenarios[0].duts]
    named = [label.strip() for label in labels.split(",")]
    if len(named) != len(set(named)) or len(named) != 2 or not set(named) <= set(known):
        raise ScenarioError(
            f"--until-decided {labels!r}: name two of the devices, such as {','.join(known[:2])}; it has {', '.join(known)}"
        )
    return UntilDecided(named[0], named[1], most_pairs or _MOST_PAIRS * scenarios[0].repetitions)
