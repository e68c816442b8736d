"""Test setups of devices with OpenFlow rules, end to end in a sandbox: the same rules for Open vSwitch and for Ringroad."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from test_test_setup import FRAME_64, assert_forwards, try_setup

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
needs_ovs = pytest.mark.skipif(shutil.which("ovs-vsctl") is None, reason="Open vSwitch is not installed (openvswitch-switch)")

LOAD = {"frame": FRAME_64, "rate_fps": 500}
ONE_WAY = {**LOAD, "bidirectional": False}
RULES = {"forwarding": "rules"}
ACL = {"shape": "acl", "entries": 300}
GUARDED = {"entries": 50, "masks": 20, "white_list": True}
DEVICES = [pytest.param("ovs", marks=needs_ovs), "ringroad"]


def parts(trial: dict[str, Any]) -> list[float]:
    """Return the fraction of the frames that arrived, by direction."""
    return [way["received_frames"] / way["sent_frames"] for way in trial["directions"]]


@pytest.mark.parametrize("driver", DEVICES)
def test_flow_tables_forward_only_flows_with_entries(driver: str) -> None:
    loads: list[dict[str, Any]] = [
        {**LOAD, "flows": 50},
        {**LOAD, "flows": 100},
        {"install": ACL},
        {**ONE_WAY, "flow_set": ACL},
        {"install": GUARDED},
        {**ONE_WAY, "flow_set": GUARDED},
        {**ONE_WAY, "flow_set": {**GUARDED, "entries": 100}},
        {**ONE_WAY, "flow_set": GUARDED, "learning": False, "attack_fps": 1000},
    ]
    results = try_setup(driver, "veth", loads, settings={**RULES, "rule_set": 50})
    assert "error" not in results, results
    rule_each, half, acl, addresses, more_addresses, attacked = map(parts, results["trials"])
    assert all(part > 0.95 for part in (*rule_each, *acl, *addresses, *attacked))
    assert all(0.4 < part < 0.6 for part in (*half, *more_addresses))
    assert all(seconds > 0 for seconds in results["loading_s"])
    if driver == "ringroad":
        # The white list's last entry drops frames; before it was installed, frames without a matching entry were counted.
        assert results["counters"]["2.dropped_by_flow"] >= 100
        assert results["counters"]["1.dropped_no_flow"] > 0


@pytest.mark.parametrize("driver", DEVICES)
def test_user_flows_drop_and_rewrite(driver: str, tmp_path: Path) -> None:
    flows = tmp_path / "my.flows"
    # Port 3 leads to the guest, and port 4 back from it: there, only rewritten frames match.
    flows.write_text(
        "priority=20,in_port=1,udp,udp_src=1025,actions=drop\n"
        "priority=10,in_port=1,udp,actions=set_field:7777->udp_dst,output:3\n"
        "in_port=4,udp,udp_dst=7777,actions=output:2\n"
        "in_port=2,actions=output:4\n"
        "in_port=3,actions=output:1\n"
    )
    scenario = {"topology": "PVP", "guest": "linux-bridge", "bidirectional": False}
    results = try_setup(driver, "veth", [{**ONE_WAY, "flows": 4}], settings={**RULES, "flows_file": str(flows)}, scenario=scenario)
    assert_forwards(results, ways=1)
    assert 0.7 < parts(results["trials"][0])[0] < 0.8
    assert results["record"]["versions"]["flows_file (SHA-256)"]


def test_ringroad_adds_and_removes_tags_by_rules() -> None:
    vlans = {"vlans": (100, 0)}
    results = try_setup("ringroad", "veth", [{**LOAD, **vlans}], settings={**RULES, "access_vlans": {"2": 100}}, scenario=vlans)
    assert_forwards(results)
    # All frames have 64 bytes. The switch counts them without FCS, and at port 1 with the tag, in both directions.
    counters = results["counters"]
    for port, size in (("1", 64), ("2", 60)):
        for way in ("rx", "tx"):
            assert counters[f"{port}.{way}_bytes"] == counters[f"{port}.{way}_frames"] * size > 0


def test_ringroad_forwards_by_the_action_normal() -> None:
    assert_forwards(try_setup("ringroad", "memif", [LOAD], settings={"forwarding": "normal"}))
