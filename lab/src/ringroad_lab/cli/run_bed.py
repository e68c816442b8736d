"""The bed of `ringroad-lab run` and `ringroad-lab resume`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ringroad_lab.errors import BedError, ScenarioError
from ringroad_lab.fleet.bed_leases import BedLeases
from ringroad_lab.fleet.inventory import Bed
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
    bed: Bed
    fleet: Path | None
    """The file that it is from; None: the usual one."""

    @property
    def facts(self) -> dict[str, dict[str, str]]:
        """What the record of its runs says of it."""
        return {_FACTS: {"name": self.name, "class": self.bed.bed_class, **self.bed.machines}}

    @contextmanager
    def occupied(self, store: str | None, run_id: str, scenarios: Sequence[Scenario]) -> Iterator[BedGuard]:
        """Have it for a run."""
        with ResultStore(store) as results, occupied(self.name, self.bed, BedLeases(results), results, run_id, scenarios) as guard:
            yield guard


def find_bed(name: str | None, fleet: Path | None) -> ChosenBed | None:
    """Return the bed of this name; None where there is no name.

    Raises:
        ScenarioError: there is no such bed.
    """
    if not name:
        return None
    beds = load_fleet(fleet).beds
    if name not in beds:
        raise ScenarioError(
            f"there is no bed '{name}' in fleet.toml{suggest(name, beds)}: [bed.{name}] makes it, --fleet names another file"
        )
    return ChosenBed(name, beds[name], fleet)


def bed_of_record(record: RunRecord, name: str | None, fleet: Path | None) -> ChosenBed | None:
    """Return the bed on which a run goes on: that on which it was begun.

    Raises:
        BedError: another one is named.
        ScenarioError: it is no more.
    """
    begun_on = record.facts.get(_FACTS, {}).get("name")
    if name and name != begun_on:
        where = f"on bed {begun_on}" if begun_on else "on no bed"
        raise BedError(f"run {record.run_id} was begun {where}, and its figures are of there: it cannot go on on bed {name}")
    return find_bed(begun_on, fleet)
