"""Assigns free beds to waiting requests. A request that fits only taken beds does not block others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from ringroad_lab.fleet import tables
from ringroad_lab.fleet.bed_leases import BedState, states_in
from ringroad_lab.fleet.inventory import BedSettings, fitting
from ringroad_lab.request.model import UNDER_WAY, RequestState
from ringroad_lab.request.table import Request

Wish = tuple[str, str]
"""Bed class and scenario of a request: they decide which beds fit."""
# The clocks of machines can differ by some seconds.
_CLOCKS_DIFFER_S = 30.0


def wishes(session: Session) -> list[Wish]:
    """Return the distinct wishes of all waiting requests."""
    table = Request
    query = select(table.bed_class, table.scenario).where(table.state == RequestState.NEW).distinct()
    return [(bed_class, scenario) for bed_class, scenario in session.execute(query)]


def allot(session: Session, beds: Mapping[str, BedSettings], now: float) -> dict[Wish, tuple[str, ...]]:
    """Return the wishes for which a bed is free now, with their free beds.

    A submitted job that has not taken its bed yet will take one of its allowed beds, so one bed is reserved for each such job.
    Beds that fit fewer wishes come first: a wish that fits every bed leaves the rare beds to the wishes that need them.
    """
    free = frozenset(name for name, state in states_in(session, beds, now).items() if state.is_free)
    if not free:
        return {}
    promised = [each for each in _promised(session) if each & free]
    fits = {wish: fitting(beds, *wish) for wish in wishes(session)}
    wanted = Counter(name for names in fits.values() for name in names)
    found = {}
    for wish, names in fits.items():
        may_have = names & free
        if may_have and _has_place(may_have, promised, free):
            found[wish] = tuple(sorted(may_have, key=lambda name: (wanted[name], name)))
    return found


def obstacle(beds: Mapping[str, BedSettings], states: Mapping[str, BedState], wish: Wish) -> str:
    """Return why a request has to wait; empty if a bed is free for the request."""
    bed_class, scenario = wish
    fits = sorted(fitting(beds, bed_class, scenario))
    if not fits:
        return f"no bed of class {bed_class} fits scenario {scenario}"
    if any(states[name].is_free for name in fits):
        return ""
    quarantined = [name for name in fits if states[name].quarantine]
    if len(quarantined) == len(fits):
        return f"all beds that fit are in quarantine: {', '.join(quarantined)}"
    busy = [name for name in fits if name not in quarantined]
    return f"all beds that fit are taken: {', '.join(busy)}" + (f"; in quarantine: {', '.join(quarantined)}" if quarantined else "")


def _promised(session: Session) -> list[frozenset[str]]:
    """Return the allowed beds of each job that has not taken a bed yet."""
    table, taking = Request, tables.BedOccupancy
    has_taken = exists().where(taking.run_id == table.run_id, taking.taken_at >= table.served_at - _CLOCKS_DIFFER_S)
    query = select(table.beds).where(table.state.in_(UNDER_WAY), table.beds != (), ~has_taken)
    return [frozenset(names) for names in session.scalars(query)]


def _has_place(may_have: frozenset[str], promised: Sequence[frozenset[str]], free: frozenset[str]) -> bool:
    """Return whether the jobs can share the free beds so that this job also gets one, besides the promised jobs."""
    jobs = [*promised, may_have]
    job_of: dict[str, int] = {}

    def place(job: int, seen: set[str]) -> bool:
        # An augmenting path: take an unassigned bed, or a bed whose job can move to another.
        for bed in sorted((jobs[job] & free) - seen):
            seen.add(bed)
            if bed not in job_of or place(job_of[bed], seen):
                job_of[bed] = job
                return True
        return False

    return [place(job, set()) for job in range(len(jobs))][-1]
