"""A fleet in simulated time: the laboratory's own store, order of requests and leases, with a clock that advances from event to event.

Only the jobs are simulated: they take a bed, run for a time, and finish, fail, are killed, or find the bed unfit.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median, quantiles

from ringroad_lab.fleet.bed_leases import BedLease, BedLeases
from ringroad_lab.fleet.holder import LEASE_S
from ringroad_lab.fleet.inventory import GENERATOR, BedSettings
from ringroad_lab.fleet.leases import Leases
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.request.message import Message
from ringroad_lab.request.model import RequestState, Wanted
from ringroad_lab.request.table import Request
from ringroad_lab.store.result_store import ResultStore

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
START = 1_700_000_000.0 - 1_700_000_000.0 % DAY_S
_MOST_ATTEMPTS = 3
_RETRY_WAIT_S = 60.0
_CALIBRATION_S = 60.0
# Far longer than the simulation, whose runs renew no leases. The lease of a killed run is shortened to the usual length.
_NO_END_S = 365 * DAY_S


@dataclass(frozen=True)
class Owner:
    """A user who requests measurements of builds."""

    name: str
    a_day: int
    priority: int = 0
    at_once_h: float | None = None
    """Hour at which all requests of a day arrive at once; None: distributed over the working hours."""


@dataclass(frozen=True)
class Plan:
    """Parameters of a simulation."""

    beds: Mapping[str, BedSettings]
    owners: Sequence[Owner]
    classes: Mapping[str, float]
    """Fraction of the requests for each class of bed."""
    days: int = 1
    median_run_s: float = 28 * 60.0
    fails: float = 0.04
    """Fraction of the jobs that fail half-way."""
    is_killed: float = 0.015
    """Fraction of the jobs that are killed half-way, so that their bed is not released."""
    is_unfit: float = 0.01
    """Fraction of the jobs whose bed fails its calibration and is quarantined."""
    release_s: float = 3 * HOUR_S
    """Mean time until an operator releases a bed from quarantine."""
    seed: int = 2544


@dataclass
class Asked:
    """A request and its result."""

    owner: str
    priority: int
    asked_at: float
    begun_at: float | None = None
    done_at: float | None = None
    is_dead: bool = False


@dataclass
class Course:
    """Course of a simulation."""

    asked: dict[int, Asked] = field(default_factory=dict)
    busy: list[tuple[float, int]] = field(default_factory=list)
    """Beds that measure, after each event."""
    waiting: list[tuple[float, dict[int, int]]] = field(default_factory=list)
    """Requests that wait, by priority, after each event."""
    jobs: Counter[str] = field(default_factory=Counter)
    """Number of jobs by result."""


class Simulation:
    """Simulates a plan."""

    def __init__(self, store: ResultStore, plan: Plan) -> None:
        """Set an empty store and the plan."""
        self.now = START
        self.course = Course()
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._requests = Requests(store, self._clock)
        self._leases = Leases(store, "simulated", holder="dispatcher:1:1:1", beds=plan.beds, clock=self._clock)
        self._beds = BedLeases(store, holder="job:1:1:1", lease_s=_NO_END_S, clock=self._clock)
        self._beds_of_killed = BedLeases(store, holder="job:1:1:1", lease_s=LEASE_S, clock=self._clock)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._left_s: dict[str, float] = {}
        """Remaining time of runs that have begun, s."""
        self._busy: set[str] = set()
        self._waits: Counter[int] = Counter()

    def _clock(self) -> float:
        return self.now

    def run(self) -> Course:
        """Simulate until the last request is done."""
        self._plan_requests()
        while self._events:
            self.now, _, act = heapq.heappop(self._events)
            act()
            # Handle all events of one moment together.
            if self._events and self._events[0][0] == self.now:
                continue
            while self._waits.total() and (request := self._leases.claim(lambda _key: True, str)):
                self._begin(request)
            self.course.busy.append((self.now, len(self._busy)))
            self.course.waiting.append((self.now, dict(self._waits)))
        return self.course

    def _at(self, moment: float, act: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (moment, self._number, act))

    def _plan_requests(self) -> None:
        for day in range(self._plan.days):
            for owner in self._plan.owners:
                for number in range(owner.a_day):
                    # Most of the work comes between 8 and 18 o'clock.
                    hour = self._random.triangular(0, 24, 13) if owner.at_once_h is None else owner.at_once_h
                    build = f"{owner.name}-{day}-{number}"
                    self._at(START + day * DAY_S + hour * HOUR_S, lambda build=build, owner=owner: self._ask(build, owner))  # type: ignore[misc]

    def _ask(self, build: str, owner: Owner) -> None:
        (bed_class,) = self._random.choices(list(self._plan.classes), list(self._plan.classes.values()))
        wanted = Wanted(
            build=build, scenario="OVS_DPDK1q", bed_class=bed_class, priority=owner.priority, owner=owner.name, built_at=self.now
        )
        (added,) = self._requests.add(Message("simulated", b"{}", self.now), [wanted])[1]
        self.course.asked[added.id] = Asked(owner.name, owner.priority, self.now)
        self._waits[owner.priority] += 1

    def _begin(self, request: Request) -> None:
        plan, run_id = self._plan, str(request.run_id)
        bed = request.beds[0]
        lease = self._beds.take(bed, run_id)
        self._busy.add(bed)
        self._waits[request.priority] -= 1
        asked = self.course.asked[request.id]
        asked.begun_at = asked.begun_at or self.now
        self._leases.move(request, RequestState.RUNNING)
        request = self._requests.get(request.id)
        left_s = self._left_s.setdefault(run_id, self._random.lognormvariate(0, 0.5) * plan.median_run_s)
        chance = self._random.random()
        if chance < plan.is_unfit:
            self._at(self.now + _CALIBRATION_S, lambda: self._end_unfit(request, lease))
        elif chance < plan.is_unfit + plan.fails + plan.is_killed:
            self._left_s[run_id] = left_s / 2
            is_killed = chance < plan.is_unfit + plan.is_killed
            self._at(self.now + left_s / 2, lambda: self._fail(request, lease, is_killed=is_killed))
        else:
            self._at(self.now + left_s, lambda: self._finish(request, lease))

    def _finish(self, request: Request, lease: BedLease) -> None:
        self.course.jobs["finished"] += 1
        self._busy.remove(lease.bed)
        self._beds.give_back(lease, "finished")
        self._leases.move(request, RequestState.DONE, verdict="measured", lease_holder="", lease_until=0.0)
        self.course.asked[request.id].done_at = self.now

    def _fail(self, request: Request, lease: BedLease, *, is_killed: bool) -> None:
        self.course.jobs["killed" if is_killed else "failed"] += 1
        self._busy.remove(lease.bed)
        if is_killed:
            self._at(self._beds_of_killed.renew(lease), lambda: None)
        else:
            self._beds.give_back(lease, "failed")
        if request.attempts >= _MOST_ATTEMPTS:
            self._leases.move(request, RequestState.DEAD, "given up", lease_holder="", lease_until=0.0)
            self.course.asked[request.id].is_dead = True
        else:
            self._give_back(request, _RETRY_WAIT_S * request.attempts, counts=True)

    def _end_unfit(self, request: Request, lease: BedLease) -> None:
        self.course.jobs["bed unfit"] += 1
        self._busy.remove(lease.bed)
        self._beds.give_back(lease, "failed", "failed its calibration")
        self._at(self.now + self._random.expovariate(1 / self._plan.release_s), lambda: self._beds.release(lease.bed))
        self._give_back(request, _RETRY_WAIT_S, counts=False, served_at=0.0)

    def _give_back(self, request: Request, wait_s: float, *, counts: bool, **values: float) -> None:
        self._leases.give_back(request, "again", wait_s, counts=counts, **values)
        self._waits[request.priority] += 1
        self._at(self.now + wait_s, lambda: None)


@dataclass(frozen=True)
class Line:
    """Waiting times for the first bed, of the requests of an owner with one priority, s."""

    owner: str
    priority: int
    requests: int
    median_s: float
    high_s: float
    """95 % of the requests waited no longer."""
    longest_s: float
    starved: int
    """Requests that waited longer than a day, or never got a bed."""


def table(course: Course) -> list[Line]:
    """Summarize waiting times, the highest priority first."""
    lines = []
    for priority, owner in sorted({(each.priority, each.owner) for each in course.asked.values()}, key=lambda key: (-key[0], key[1])):
        its = [each for each in course.asked.values() if (each.priority, each.owner) == (priority, owner)]
        waits = [each.begun_at - each.asked_at for each in its if each.begun_at is not None]
        starved = len(its) - len(waits) + sum(wait > DAY_S for wait in waits)
        high = quantiles(waits, n=20, method="inclusive")[-1] if len(waits) > 1 else waits[0]
        lines.append(Line(owner, priority, len(its), median(waits), high, max(waits), starved))
    return lines


def utilisation(course: Course, beds: int, days: int) -> float:
    """Return the fraction of the beds' time that they spent measuring, in the period of the requests."""
    until = START + days * DAY_S
    steps = [*((moment, count) for moment, count in course.busy if moment < until), (until, 0)]
    used = sum(count * (after - moment) for (moment, count), (after, _) in pairwise(steps))
    return used / (beds * days * DAY_S)


def make_beds(classes: Mapping[str, int]) -> dict[str, BedSettings]:
    """Return beds: for each class the given number."""
    return {
        f"{bed_class}-{number}": BedSettings.model_validate({"class": bed_class, "machines": {GENERATOR: f"{bed_class}-{number}"}})
        for bed_class, count in classes.items()
        for number in range(1, count + 1)
    }
