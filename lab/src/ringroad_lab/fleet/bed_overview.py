"""Overview of beds for users: their states, how much they were used, and how long requests waited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ringroad_lab.fleet import tables
from ringroad_lab.fleet.allotment import obstacle, wishes
from ringroad_lab.fleet.bed_leases import BedState, Occupancy, read_occupancy, states_in
from ringroad_lab.fleet.inventory import BedSettings
from ringroad_lab.request.model import RequestState
from ringroad_lab.request.table import Request
from ringroad_lab.store.result_store import ResultStore

LOOK_BACK_S = 7 * 86400.0
"""Usage and waiting times cover this period."""
_HISTORY = 50


@dataclass(frozen=True)
class Waits:
    """Waiting times of requests until a bed was taken for them."""

    number: int
    median_s: float | None
    longest_s: float | None

    @classmethod
    def of(cls, waits: Sequence[float]) -> Waits:
        """Sum up."""
        return cls(len(waits), median(waits) if waits else None, max(waits, default=None))


@dataclass(frozen=True)
class BedLine:
    """A bed."""

    name: str
    bed_class: str
    machines: Mapping[str, str]
    """Machines by role."""
    state: BedState
    occupied: float
    """Fraction of `LOOK_BACK_S` during which the bed was taken."""
    waits: Waits

    @property
    def word(self) -> str:
        """The state in one word."""
        return "busy" if self.state.occupancy else "quarantine" if self.state.quarantine else "free"


@dataclass(frozen=True)
class ClassLine:
    """The requests for a bed class."""

    bed_class: str
    beds: int
    """Beds of the class in the fleet; all beds for `any`."""
    waiting: int
    """Requests waiting now."""
    oldest_s: float | None
    """Age of the oldest waiting request."""
    waits: Waits


@dataclass(frozen=True)
class Overview:
    """All beds."""

    beds: Sequence[BedLine]
    classes: Sequence[ClassLine]
    obstacles: Sequence[tuple[str, str, str]]
    """Bed class, scenario, and why requests for them wait, if no free bed fits."""
    history: Sequence[Occupancy]
    """The newest first."""

    def as_json(self) -> dict[str, Any]:
        """Return the overview for programs (JSON)."""
        return {
            "beds": [{**asdict(line), "word": line.word} for line in self.beds],
            "classes": [asdict(line) for line in self.classes],
            "waiting": [{"bed_class": a, "scenario": b, "why": c} for a, b, c in self.obstacles],
            "history": [asdict(each) for each in self.history],
        }


def overview(store: ResultStore, beds: Mapping[str, BedSettings], now: float) -> Overview:
    """Return the states of the fleet's beds and of the other beds in the store.

    Raises:
        StoreError: the database failed.
    """
    with store.reading() as session:
        names = sorted({*beds, *session.scalars(select(tables.StoredBed.name))})
        states = states_in(session, names, now)
        taking, request = tables.BedOccupancy, Request
        recent = select(taking.bed, taking.taken_at, taking.ended_at, taking.waited_s, request.bed_class)
        recent = recent.outerjoin(request, request.id == taking.request_id)
        since = now - LOOK_BACK_S
        taken_s: dict[str, float] = {}
        waits: dict[str, list[float]] = {}
        class_waits: dict[str, list[float]] = {}
        for name, taken_at, ended_at, waited_s, bed_class in session.execute(recent.where(func.coalesce(taking.ended_at, now) > since)):
            lease_until = states[name].lease_until or taken_at
            ended_at = ended_at if ended_at is not None else min(now, lease_until)
            taken_s[name] = taken_s.get(name, 0.0) + max(0.0, ended_at - max(taken_at, since))
            if waited_s is not None:
                waits.setdefault(name, []).append(waited_s)
                class_waits.setdefault(bed_class, []).append(waited_s)
        history = session.scalars(select(taking).order_by(taking.id.desc()).limit(_HISTORY))
        return Overview(
            [
                BedLine(
                    name,
                    beds[name].bed_class if name in beds else "",
                    beds[name].machines if name in beds else {},
                    states[name],
                    taken_s.get(name, 0.0) / LOOK_BACK_S,
                    Waits.of(waits.get(name, [])),
                )
                for name in names
            ],
            _classes(session, beds, class_waits, now),
            [(*wish, why) for wish in sorted(wishes(session)) if beds and (why := obstacle(beds, states, wish))],
            [read_occupancy(row) for row in history],
        )


def _classes(session: Session, beds: Mapping[str, BedSettings], waits: Mapping[str, Sequence[float]], now: float) -> list[ClassLine]:
    table = Request
    waiting = select(table.bed_class, func.count(), func.min(table.created_at)).where(table.state == RequestState.NEW)
    now_waiting = {name: (number, oldest) for name, number, oldest in session.execute(waiting.group_by(table.bed_class))}
    lines = []
    for name in sorted({*now_waiting, *waits, *(bed.bed_class for bed in beds.values())}):
        number, oldest = now_waiting.get(name, (0, None))
        of_class = sum(bed.fits_class(name) for bed in beds.values())
        lines.append(ClassLine(name, of_class, number, None if oldest is None else now - oldest, Waits.of(waits.get(name, []))))
    return lines
