"""Pages of beds: their runs, the reason of a quarantine and how to release it, and why requests wait."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from web_visitor import WebVisitor

from fabricated_runs import EPOCH, HOSTILE
from ringroad_lab.fleet.bed_leases import BedLeases
from ringroad_lab.fleet.inventory import BedSettings
from ringroad_lab.fleet.leases import Leases
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.request.message import Message
from ringroad_lab.request.model import Wanted
from ringroad_lab.store.result_store import ResultStore

BEDS = {name: BedSettings.model_validate({"class": name, "machines": {"generator": f"gen-{name}"}}) for name in ("nic", "veth")}


@pytest.fixture
def fleet(make_visitor: Callable[..., WebVisitor], store: ResultStore) -> WebVisitor:
    """A visitor of a server with two beds: one measures, the other is in quarantine, and a request waits for it."""
    made = make_visitor(beds=BEDS, clock=lambda: EPOCH + 90)
    requests = Requests(store, lambda: EPOCH)
    for build, bed_class in (("first", "veth"), ("second", "nic")):
        requests.add(Message("koji", b"{}", EPOCH), [Wanted(build=build, scenario="BRIDGE_VETH", bed_class=bed_class, built_at=EPOCH)])
    leases = BedLeases(store, holder="gen-veth:1:2:3", clock=lambda: EPOCH + 60)
    leases.quarantine("nic", f"the cable is loose {HOSTILE}", "ann")
    request = Leases(store, "local", beds=BEDS, clock=lambda: EPOCH + 60).claim(lambda _key: False, str)
    assert request
    leases.take("veth", str(request.run_id))
    return made


def test_the_page_of_beds_shows_their_runs_and_how_to_release_them(fleet: WebVisitor) -> None:
    assert fleet.get("/beds").status_code == 303
    fleet.log_in()
    shown = fleet.get("/beds").text
    for words in ("gen-veth", 'href="/requests/1"', "the cable is loose", "ringroad-lab beds release nic", "by ann", "1 min 00 s"):
        assert words in shown
    assert "Requests for class nic, BRIDGE_VETH wait: all beds that fit are in quarantine: nic." in shown
    assert "<script>alert" not in shown
    assert "all beds that fit are in quarantine: nic" in fleet.get("/requests/2").text
    assert "veth: veth" in fleet.get("/requests/1").text


def test_programs_read_beds(fleet: WebVisitor) -> None:
    assert fleet.get("/api/beds").status_code == 401
    fleet.log_in()
    beds = fleet.get("/api/beds").json()
    assert [(bed["name"], bed["word"]) for bed in beds["beds"]] == [("nic", "quarantine"), ("veth", "busy")]
    assert beds["beds"][1]["state"]["occupancy"]["request_id"] == 1
    assert beds["history"][0]["waited_s"] == 60
    assert [each["waiting"] for each in beds["classes"]] == [1, 0]
    assert beds["waiting"][0]["bed_class"] == "nic"


def test_without_a_fleet_there_are_no_beds(tester: WebVisitor) -> None:
    assert "There are no beds" in tester.get("/beds").text
