"""The bed of a run, by its name in `fleet.toml`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ringroad_lab.errors import BedError, ScenarioError
from ringroad_lab.fleet.bed_leases import BedLeases
from ringroad_lab.fleet.inventory import BedSettings
from ringroad_lab.fleet.settings import load_fleet
from ringroad_lab.record import RunRecord
from ringroad_lab.run.bed_guard import BedGuard, occupied
from ringroad_lab.scenario.model import Scenario
from ringroad_lab.scenario.near_miss import suggest
from ringroad_lab.store.result_store import ResultStore

_FACTS = "bed"


@dataclass(frozen=True)
class ChosenBed:
    """A bed of `fleet.toml` with its name."""

    name: str
    settings: BedSettings
    fleet: Path | None
    """The file that defines the bed; None: the default file."""

    @property
    def facts(self) -> dict[str, dict[str, str]]:
        """The bed in the record of its runs."""
        return {_FACTS: {"name": self.name, "class": self.settings.bed_class, **self.settings.machines}}

    @contextmanager
    def occupied(self, store: str | None, run_id: str, scenarios: Sequence[Scenario]) -> Iterator[BedGuard]:
        """Hold the bed for a run."""
        with ResultStore(store) as results, occupied(self.name, self.settings, BedLeases(results), results, run_id, scenarios) as guard:
            yield guard


def find_bed(name: str | None, fleet: Path | None) -> ChosenBed | None:
    """Return the bed of this name; None if the name is empty.

    Raises:
        ScenarioError: there is no such bed.
    """
    if not name:
        return None
    beds = load_fleet(fleet).beds
    if name not in beds:
        raise ScenarioError(
            f"there is no bed '{name}' in fleet.toml{suggest(name, beds)}: add [bed.{name}], or name another file with --fleet"
        )
    return ChosenBed(name, beds[name], fleet)


def bed_of_record(record: RunRecord, name: str | None, fleet: Path | None) -> ChosenBed | None:
    """Return the bed on which a run must be resumed: the bed on which it was started.

    Raises:
        BedError: another bed is named.
        ScenarioError: the bed no longer exists.
    """
    started_on = record.facts.get(_FACTS, {}).get("name")
    if name and name != started_on:
        where = f"on bed {started_on}" if started_on else "without a bed"
        raise BedError(f"run {record.run_id} was started {where}, and all its results must be from there: it cannot resume on bed {name}")
    return find_bed(started_on, fleet)
