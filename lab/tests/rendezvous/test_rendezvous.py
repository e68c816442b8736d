"""Members and servers as real processes, in network namespaces that are joined by a bridge: what goes away comes back, and none hangs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sandboxed import ask_in_sandbox

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def told(what: str) -> dict[str, Any]:
    return ask_in_sandbox(Path(__file__).parent / "rendezvous_in_sandbox.py", what)


def test_three_members_pass_two_barriers_and_one_that_comes_again_is_reported_so() -> None:
    found = told("pass")
    assert found["first"] == [[0, "barrier 1: met"]] * 3
    assert found["second"] == [[0, "barrier 2: met"]] * 3
    assert found["again"] == [0, "barrier 1: met before"]
    assert found["status"][0] == 0
    assert "barriers met: 2" in found["status"][1]


def test_a_link_that_goes_down_and_comes_back_with_other_addresses_ends_no_wait() -> None:
    found = told("network")
    assert found["came"] == [[0, "barrier 1: met"]] * 2
    # It asked from its new address, at the server's new one.
    assert found["noticed"]
    assert found["from"] == "10.9.0.12"


def test_a_server_and_members_that_are_killed_go_on_where_they_were() -> None:
    found = told("kill")
    assert found["came"] == [[0, "barrier 1: met"]] * 2
    assert found["members"]["dut"]["boots"] == 2
    assert found["members"]["generator"]["boots"] == 1
    assert found["met before a restart"] == [0, "barrier 1: met before"]


def test_after_the_deadline_all_are_reported_who_is_missing() -> None:
    found = told("deadline")
    assert found["waited"][0] == 3
    assert "dut is missing (last at barrier 0, 0 boots, not heard of" in found["waited"][1]
    assert found["late"][0] == 3
    assert "dut is missing" in found["late"][1]
    assert found["status"][0] == 1
    # As on the disk of a server that was killed.
    assert found["after a restart"][0] == 3


def test_all_see_an_abort_with_its_reason() -> None:
    found = told("abort")
    assert found["abort"] == [0, "aborted: generator: no such card"]
    assert found["waited"] == [1, "aborted: generator: no such card"]
    assert found["later"] == [1, "aborted: generator: no such card"]
    assert found["second reason"] == [0, "aborted: generator: no such card"]


def test_a_member_that_is_not_heard_of_holds_a_barrier_until_its_deadline() -> None:
    found = told("silence")
    assert found["heard again"] == [[0, "barrier 1: met"]] * 2
    assert found["gone"][0] == 3
    assert "dut came, but is not heard of for" in found["gone"][1]


def test_strangers_hold_no_places_and_cost_little() -> None:
    found = told("strangers")
    assert found["came"] == [[0, "barrier 1: met"]] * 2
    assert found["descriptors"] < 120
    assert found["memory_grown_mib"] < 32
    assert found["lines said"] < 20
    # The one with another secret gives up at its deadline, and knows why.
    assert found["wrong secret"][0] == 3
    assert "does it have another secret?" in found["wrong secret"][1]


def test_a_server_that_lies_or_is_silent_is_not_believed() -> None:
    found = told("lies")
    assert found["liar"][0] == 3
    assert "not signed by our secret" in found["liar"][1]
    assert found["silent, then the real one"] == [[0, "barrier 1: met"]] * 2


def test_what_is_not_on_the_disk_is_not_told() -> None:
    found = told("full")
    assert found["while full"]
    assert found["said"] == 1
    assert found["came"] == [[0, "barrier 1: met"]] * 2


def test_wrong_use_is_reported_at_once() -> None:
    found = told("usage")
    statuses = {name: status for name, (status, _) in found.items()}
    assert statuses == {name: 1 if name.startswith("state of") else 2 for name in found}
    assert "the next one is barrier 1" in found["out of step"][1]
    assert "there is no member 'guest'" in found["stranger's role"][1]
    assert "16 characters or more" in found["short secret"][1]
    assert "another secret" in found["state of another"][1]
    assert "is of the members" in found["state of others"][1]
