"""Beds in the store, on SQLite and PostgreSQL: one run holds a bed, a run that lost it cannot write, and requests get free beds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from fabricated_runs import fabricated_run
from hand_clock import EPOCH, HandClock
from ringroad_lab.errors import BedError, BedLostError, StoreError
from ringroad_lab.fleet.bed_leases import LOST, BedLeases
from ringroad_lab.fleet.bed_overview import LOOK_BACK_S, overview
from ringroad_lab.fleet.calibration import Calibration
from ringroad_lab.fleet.holder import LEASE_S, this_process
from ringroad_lab.fleet.inventory import BedSettings
from ringroad_lab.fleet.leases import Leases
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.record import GeneratorCeiling
from ringroad_lab.request.message import Message
from ringroad_lab.request.model import RequestState, Wanted
from ringroad_lab.request.table import Request
from ringroad_lab.scenario.model import DutChoice, MethodChoice, Scenario
from ringroad_lab.store.result_store import ResultStore
from store_writers import head_of

GONE = this_process().rpartition(":")[0] + ":1.00"


def of(store: ResultStore, clock: HandClock, holder: str = "elsewhere:1:2:3") -> BedLeases:
    return BedLeases(store, holder=holder, clock=clock)


def bed(bed_class: str = "any", **values: Any) -> BedSettings:  # noqa: ANN401
    return BedSettings.model_validate({"class": bed_class, "machines": {"generator": "gen"}, **values})


# A run and its bed


def test_one_run_holds_a_bed_and_the_next_gets_a_greater_token(store: ResultStore, clock: HandClock) -> None:
    mine, other = of(store, clock), of(store, clock, "there:1:2:3")
    first = mine.take("a", "run-1")
    with pytest.raises(BedError, match=r"bed a is taken: run run-1 on elsewhere"):
        other.take("a", "run-2")
    # The same process cannot take it twice either.
    with pytest.raises(BedError, match="taken"):
        mine.take("a", "run-2")
    mine.give_back(first, "finished")
    second = other.take("a", "run-2")
    assert (first.token, second.token, second.lost_run_id) == (1, 2, "")
    with pytest.raises(BedLostError):
        mine.renew(first)
    state = other.states(["a", "b"])
    assert state["a"].occupancy
    assert (state["a"].occupancy.run_id, state["a"].token, state["b"].is_free) == ("run-2", 2, True)


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_run_with_an_expired_lease_cannot_write_even_if_the_bed_is_free(store: ResultStore, clock: HandClock, is_taken: bool) -> None:
    mine, record = of(store, clock), fabricated_run()
    lease = mine.take("a", record.run_id)
    fenced = store.fenced(lambda session: mine.check_in(session, lease))
    fenced.begin_run(head_of(record))
    fenced.add_measurement(record.run_id, record.measurements[0])
    clock.now += LEASE_S - 1
    assert mine.renew(lease) == clock.now + LEASE_S
    clock.now += LEASE_S
    if is_taken:
        assert of(store, clock, "there:1:2:3").take("a", "another").lost_run_id == record.run_id
    late: list[Callable[[], object]] = [
        lambda: fenced.add_measurement(record.run_id, record.measurements[1]),
        lambda: fenced.end_run(record),
        lambda: mine.renew(lease),
        lambda: mine.check(lease),
        lambda: mine.give_back(lease, "finished"),
    ]
    for write in late:
        with pytest.raises(BedLostError, match="no longer" if is_taken else "ended at"):
            write()
    assert len(store.get_run(record.run_id).measurements) == 1
    (*_, oldest) = overview(store, {}, clock.now).history
    assert oldest.outcome == (LOST if is_taken else "")


def test_a_killed_run_of_this_machine_leaves_its_bed_at_once(store: ResultStore, clock: HandClock) -> None:
    killed = of(store, clock, GONE)
    lease = killed.take("a", "run-1")
    again = of(store, clock, this_process()).take("a", "run-1")
    assert (again.token, again.lost_run_id) == (lease.token + 1, "run-1")
    with pytest.raises(BedLostError):
        killed.check(lease)


def test_two_copies_of_a_run_never_hold_two_beds(store: ResultStore, clock: HandClock) -> None:
    first, second = of(store, clock), of(store, clock, "there:1:2:3")
    lease = first.take("a", "run-1")
    with pytest.raises(BedError, match="still holds bed a"):
        second.take("b", "run-1")
    clock.now += LEASE_S
    assert second.take("b", "run-1").token == 1
    with pytest.raises(BedLostError):
        first.check(lease)


def test_only_one_of_many_concurrent_runs_gets_a_bed(location: str) -> None:
    barrier = threading.Barrier(8)
    got: list[int] = []
    refused: list[BedError] = []

    def take(number: int) -> None:
        with ResultStore(location) as store:
            barrier.wait()
            try:
                got.append(BedLeases(store, holder=f"machine-{number}:1:2:3").take("a", f"run-{number}").token)
            except BedError as error:
                refused.append(error)

    ResultStore(location).close()
    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (got, len(refused)) == ([1], 7)


# Quarantine and calibration


def test_a_bed_in_quarantine_cannot_be_taken_until_it_is_released(store: ResultStore, clock: HandClock) -> None:
    mine = of(store, clock)
    with pytest.raises(StoreError, match="not in quarantine"):
        mine.release("a")
    lease = mine.take("a", "run-1")
    mine.quarantine("a", "its cable is loose", "ann")
    # The current holder continues.
    mine.renew(lease)
    mine.give_back(lease, "finished", "another reason")
    with pytest.raises(BedError, match=r"quarantine.*ann.*its cable is loose.*beds release a"):
        mine.take("a", "run-2")
    with pytest.raises(StoreError, match="its cable is loose"):
        mine.quarantine("a", "again", "bob")
    mine.release("a")
    assert mine.take("a", "run-2").token == 2


def calibration(store: ResultStore, run_id: str, of_bed: BedSettings, flows: int = 1) -> Calibration:
    scenario = Scenario(
        name="simulated",
        duts=(DutChoice(label="ovs", driver="ovs"),),
        methods=(MethodChoice(name="throughput"),),
        frames=(parse_frame_mix("64"),),
        flows=flows,
    )
    return Calibration(store, "a", of_bed, run_id, (scenario,))


def ceiling(fps: float, **values: str) -> GeneratorCeiling:
    return GeneratorCeiling(transport="veth", frame=parse_frame_mix("64"), ceiling_fps=fps, **values)


def test_a_bed_that_carries_less_than_before_fails_its_calibration(store: ResultStore, clock: HandClock) -> None:
    mine, usual = of(store, clock), bed(calibration_limit=0.2)
    lease = mine.take("a", "run-1")
    for number, fps in enumerate((1e6, 3e5, 1e6, 1.1e6)):
        # At first there are too few calibrations to compare with: one of them could be an outlier.
        calibration(store, f"run-{number}", usual).check(ceiling(fps))
    calibration(store, "run-5", usual).check(ceiling(0.81e6))
    # A ceiling that was measured again during a run does not count for the bed. Neither does another load.
    calibration(store, "run-6", usual).check(ceiling(1e5, cause="a trial contradicted it"))
    calibration(store, "run-6", usual, flows=1000).check(ceiling(1e5))
    for _ in range(2):
        # A failed calibration is not a reference for the next.
        with pytest.raises(BedError, match=r"500.0 kframes/s of 64 over veth.*before \(median of 5\).*20 %"):
            calibration(store, "run-7", usual).check(ceiling(5e5))
    mine.give_back(lease, "failed", "it failed")
    mine.release("a", forget_calibrations=True)
    calibration(store, "run-8", usual).check(ceiling(5e5))


def test_a_bed_can_have_a_minimum(store: ResultStore, clock: HandClock) -> None:
    of(store, clock).take("a", "run-1")
    at_least = bed(calibration_minimum_fps={"64": 1e6})
    calibration(store, "run-1", at_least).check(ceiling(1e6))
    with pytest.raises(BedError, match="calibration_minimum_fps"):
        calibration(store, "run-2", at_least).check(ceiling(0.99e6))


# Requests and beds


FLEET = {"a": bed("veth"), "b": bed("veth", scenarios=["OVS_*"]), "c": bed("nic")}


class Fleet:
    """Requests, a dispatcher, and runs on beds."""

    def __init__(self, store: ResultStore, clock: HandClock, beds: dict[str, BedSettings] = FLEET) -> None:
        self.beds = of(store, clock, "job:1:2:3")
        self.leases = Leases(store, "local", holder="dispatcher:1:2:3", beds=beds, clock=clock)
        self.requests = Requests(store, clock)
        self.clock = clock

    def add_request(self, build: str, bed_class: str = "any", scenario: str = "BRIDGE_VETH", **values: Any) -> None:  # noqa: ANN401
        self.clock.now += 1
        wanted = Wanted(build=build, scenario=scenario, bed_class=bed_class, built_at=EPOCH, **values)
        self.requests.add(Message("koji", b"{}", EPOCH), [wanted])

    def claim(self) -> Request | None:
        return self.leases.claim(lambda _key: True, str)

    def claimed(self) -> list[tuple[str, tuple[str, ...]]]:
        found = []
        while request := self.claim():
            found.append((request.build, request.beds))
        return found


@pytest.fixture
def fleet(store: ResultStore, clock: HandClock) -> Fleet:
    return Fleet(store, clock)


def test_requests_for_taken_beds_do_not_block_other_requests(fleet: Fleet) -> None:
    fleet.beds.take("c", "other-run")
    for number in range(3):
        fleet.add_request(f"nic-{number}", "nic", priority=100)
    fleet.add_request("bridge", "veth")
    fleet.add_request("ovs", scenario="OVS_DPDK1q")
    fleet.add_request("other", "nic400g", priority=1000)
    # Two jobs and two beds: `ovs` can use either bed, so a bed is left for each job.
    assert fleet.claimed() == [("bridge", ("a",)), ("ovs", ("a", "b"))]
    assert fleet.leases.obstacles() == {"requests for class nic400g, BRIDGE_VETH wait: no bed of class nic400g fits scenario BRIDGE_VETH"}
    fleet.beds.quarantine("c", "loose cable", "ann")
    assert any("nic, BRIDGE_VETH wait: all beds that fit are in quarantine: c" in each for each in fleet.leases.obstacles())


def test_no_more_jobs_are_started_than_there_are_beds(fleet: Fleet) -> None:
    for number in range(5):
        fleet.add_request(f"build-{number}")
    assert [len(beds) for _, beds in fleet.claimed()] == [2, 2]
    first = fleet.requests.get(1)
    fleet.beds.take("a", str(first.run_id))
    # The other one has not taken its bed yet.
    assert fleet.claimed() == []
    fleet.beds.quarantine("c", "loose cable", "ann")
    assert fleet.claimed() == []


def test_a_run_resumes_on_its_bed_and_restarts_on_another(fleet: Fleet) -> None:
    fleet.add_request("build")
    request = fleet.claim()
    assert request
    for bed_then, is_usable in (("a", True), ("a", False)):
        lease = fleet.beds.take(bed_then, str(request.run_id))
        assert fleet.leases.move(request, RequestState.RUNNING)
        fleet.beds.give_back(lease, "failed", "" if is_usable else "it failed its calibration")
        request = fleet.requests.get(request.id)
        assert fleet.leases.give_back(request, "the bed", 0.0, counts=False)
        again = fleet.claim()
        assert again
        assert again.beds == (("a",) if is_usable else ("c",))
        assert (again.run_id == request.run_id) is is_usable
        assert again.attempts == 1
        request = again


def test_requests_that_need_an_operator_do_not_count_as_waiting(fleet: Fleet) -> None:
    fleet.add_request("build", "nic")
    assert fleet.leases.is_any_new()
    fleet.beds.take("c", "other-run")
    assert not fleet.leases.is_any_new()
    assert fleet.leases.is_any_waiting()
    fleet.beds.quarantine("c", "loose cable", "ann")
    assert not fleet.leases.is_any_waiting()


def test_the_overview_reports_use_and_waiting_times_by_bed_and_class(fleet: Fleet, store: ResultStore, clock: HandClock) -> None:
    fleet.add_request("build", "nic")
    fleet.add_request("waits", "nic")
    clock.now += 300
    request = fleet.claim()
    assert request
    lease = fleet.beds.take("c", str(request.run_id))
    clock.now += 30
    fleet.beds.renew(lease)
    clock.now += 30
    fleet.beds.give_back(lease, "finished")
    fleet.beds.take("gone", "by hand")
    found = overview(store, FLEET, clock.now)
    lines = {line.name: line for line in found.beds}
    assert {name: line.word for name, line in lines.items()} == {"a": "free", "b": "free", "c": "free", "gone": "busy"}
    assert lines["c"].occupied == pytest.approx(60 / LOOK_BACK_S)
    # The first request was made one second before the second.
    assert (lines["c"].waits.number, lines["c"].waits.longest_s) == (1, 301)
    nic = next(line for line in found.classes if line.bed_class == "nic")
    assert (nic.beds, nic.waiting, nic.oldest_s, nic.waits.median_s) == (1, 1, 360, 301)
    assert [(each.bed, each.request_id, each.outcome) for each in found.history] == [("gone", None, ""), ("c", 1, "finished")]
    assert found.as_json()["beds"][2]["name"] == "c"
