"""The simulation of a small fleet: every request is done, in the laboratory's own order, and the printed figures are right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from simulated_fleet import HOUR_S, Asked, Course, Owner, Plan, Simulation, make_beds, table, utilisation

from ringroad_lab.fleet.bed_overview import overview
from ringroad_lab.fleet.requests import RequestFilter, Requests
from ringroad_lab.request.model import RequestState
from ringroad_lab.store.result_store import ResultStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with ResultStore(str(tmp_path / "results.db")) as store:
        yield store


def test_whatever_fails_every_request_is_served_and_no_bed_stays_taken(store: ResultStore) -> None:
    plan = Plan(
        beds=make_beds({"veth": 2, "nic": 1}),
        owners=(Owner("release", 4, priority=10), Owner("bulk", 12, at_once_h=10.0), Owner("nightly", 8, priority=-10, at_once_h=0.0)),
        classes={"any": 0.6, "nic": 0.4},
        fails=0.15,
        is_killed=0.15,
        is_unfit=0.1,
    )
    course = Simulation(store, plan).run()
    states = [each.state for each in Requests(store).find()]
    assert len(states) == len(course.asked) == 24
    assert set(states) <= {RequestState.DONE, RequestState.DEAD}
    assert Requests(store).count(RequestFilter(state=RequestState.DEAD)) == sum(each.is_dead for each in course.asked.values())
    assert {"finished", "failed", "killed", "bed unfit"} <= set(course.jobs)
    assert course.busy[-1][1] == 0
    assert not any(course.waiting[-1][1].values())
    assert all(0 <= busy <= 3 for _, busy in course.busy)
    found = overview(store, plan.beds, course.busy[-1][0] + 1e6)
    assert [line.word for line in found.beds] == ["free"] * 3
    assert 0 < utilisation(course, 3, plan.days) <= 1
    assert sum(line.requests for line in table(course)) == 24


def test_the_table_shows_waiting_times_and_starved_owners() -> None:
    asked = {number: Asked("ann", 0, 0.0, begun_at=minutes * 60.0) for number, minutes in enumerate((1, 2, 3, 30))}
    asked[4] = Asked("ann", 0, 0.0)
    asked[5] = Asked("bob", 5, 0.0, begun_at=25 * HOUR_S)
    bob, ann = table(Course(asked))
    assert (bob.owner, bob.priority, bob.starved, bob.longest_s) == ("bob", 5, 1, 25 * HOUR_S)
    assert (ann.requests, ann.median_s, ann.longest_s, ann.starved) == (5, 150.0, 1800.0, 1)
