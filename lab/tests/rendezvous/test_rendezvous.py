"""Members and servers as real processes in network namespaces, joined by a bridge: failed parts recover, and no process hangs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sandboxed import ask_in_sandbox

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def result_of(part: str) -> dict[str, Any]:
    return ask_in_sandbox(Path(__file__).parent / "rendezvous_in_sandbox.py", part)


def test_three_members_pass_two_barriers_and_a_repeated_arrival_is_reported_as_met_before() -> None:
    found = result_of("pass")
    assert found["first"] == [[0, "barrier 1: met"]] * 3
    assert found["second"] == [[0, "barrier 2: met"]] * 3
    assert found["again"] == [0, "barrier 1: met before"]
    assert found["status"][0] == 0
    assert "barriers met: 2" in found["status"][1]


def test_a_wait_survives_a_link_failure_and_changed_addresses() -> None:
    found = result_of("network")
    assert found["came"] == [[0, "barrier 1: met"]] * 2
    # The member connected from its new address to the server's new address.
    assert found["noticed"]
    assert found["from"] == "10.9.0.12"


def test_a_killed_server_and_killed_members_resume_where_they_were() -> None:
    found = result_of("kill")
    assert found["came"] == [[0, "barrier 1: met"]] * 2
    assert found["members"]["dut"]["boots"] == 2
    assert found["members"]["generator"]["boots"] == 1
    assert found["met before a restart"] == [0, "barrier 1: met before"]


def test_after_the_deadline_all_members_report_the_missing_member() -> None:
    found = result_of("deadline")
    assert found["waited"][0] == 3
    assert "dut is missing (last at barrier 0, 0 boots, silent" in found["waited"][1]
    assert found["late"][0] == 3
    assert "dut is missing" in found["late"][1]
    assert found["status"][0] == 1
    # The state on disk survives a killed server.
    assert found["after a restart"][0] == 3


def test_all_see_an_abort_with_its_reason() -> None:
    found = result_of("abort")
    assert found["abort"] == [0, "aborted: generator: no such card"]
    assert found["waited"] == [1, "aborted: generator: no such card"]
    assert found["later"] == [1, "aborted: generator: no such card"]
    assert found["second reason"] == [0, "aborted: generator: no such card"]


def test_a_silent_member_holds_a_barrier_until_its_deadline() -> None:
    found = result_of("silence")
    assert found["heard again"] == [[0, "barrier 1: met"]] * 2
    assert found["gone"][0] == 3
    assert "dut arrived, but has been silent for" in found["gone"][1]


def test_unauthenticated_clients_block_no_member_and_use_few_resources() -> None:
    found = result_of("strangers")
    assert found["came"] == [[0, "barrier 1: met"]] * 2
    assert found["descriptors"] < 120
    assert found["memory_grown_mib"] < 32
    assert found["lines printed"] < 20
    # The client with the wrong secret gives up at its deadline and prints the reason.
    assert found["wrong secret"][0] == 3
    assert "does it have another secret?" in found["wrong secret"][1]


def test_a_forged_answer_is_rejected_and_a_silent_server_is_skipped() -> None:
    found = result_of("lies")
    assert found["liar"][0] == 3
    assert "not signed with our secret" in found["liar"][1]
    assert found["silent, then the real one"] == [[0, "barrier 1: met"]] * 2


def test_a_state_that_is_not_on_disk_is_not_reported() -> None:
    found = result_of("full")
    assert found["while full"]
    assert found["reports"] == 1
    assert found["came"] == [[0, "barrier 1: met"]] * 2


def test_invalid_usage_is_reported_at_once() -> None:
    found = result_of("usage")
    statuses = {name: status for name, (status, _) in found.items()}
    assert statuses == {name: 1 if name.startswith("state of") else 2 for name in found}
    assert "the next one is barrier 1" in found["out of step"][1]
    assert "there is no member 'guest'" in found["stranger's role"][1]
    assert "16 characters or more" in found["short secret"][1]
    assert "another secret" in found["state of another"][1]
    assert "belongs to the members" in found["state of others"][1]
