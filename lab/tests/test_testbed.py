"""Test beds end to end: real programs, in a sandbox, at tiny durations. Frames pass and are counted; how fast is not asserted."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from ringroad_lab.sandbox.private import Sandbox

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
needs_dpdk = pytest.mark.skipif(shutil.which("dpdk-testpmd") is None, reason="dpdk-testpmd is not installed (dpdk-dev)")

FRAME_64 = {"name": "64", "parts": [[64, 1]]}
IMIX = {"name": "imix", "parts": [[64, 7], [594, 4], [1518, 1]]}
TIMEOUT_S = 120


def bed(driver: str, cable: str, loads: list[dict[str, Any]], *, env: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Build a bed in a sandbox, offer it loads, and return what came of it."""
    dut = {"label": driver, "driver": driver, "settings": more.pop("settings", {})}
    scenario = {
        "name": "test",
        "duts": [dut],
        "physical": cable,
        "methods": [{"name": "throughput"}],
        "frames": [FRAME_64],
        "huge_pages": False,
        **more.pop("scenario", {}),
    }
    program = Path(__file__).parent / "bed_in_sandbox.py"
    sandbox = Sandbox.start([sys.executable, str(program)], env=env)
    try:
        sandbox.stdin.write(json.dumps({"scenario": scenario, "loads": loads, "duration_s": 0.2, **more}))
        sandbox.stdin.close()
        line = sandbox.stdout.readline()
        assert line, "the program ended without a word"
        assert sandbox.wait(TIMEOUT_S) == 0
        told = json.loads(line)
        assert isinstance(told, dict)
        return told
    finally:
        sandbox.close(0.0)


def assert_forwards(told: dict[str, Any], *, ways: int = 2) -> None:
    assert "error" not in told, told
    for trial in told["trials"]:
        assert len(trial["directions"]) == ways
        for way in trial["directions"]:
            # On a busy machine the generator may be late, and says so; what was sent and counted has to be right all the same.
            assert 0 < way["received_frames"] <= way["sent_frames"]
            assert way["foreign_frames"] == 0
            assert way["duplicate_frames"] == 0
            assert way["latency"]["min_ns"] > 0


BEDS = [
    pytest.param("linux-bridge", "veth", id="linux-bridge-veth"),
    pytest.param("ringroad", "veth", id="ringroad-veth"),
    pytest.param("ringroad", "memif", id="ringroad-memif"),
    pytest.param("ringroad", "vhost-user", id="ringroad-vhost-user"),
    pytest.param("testpmd", "memif", id="testpmd-memif", marks=needs_dpdk),
    pytest.param("testpmd", "vhost-user", id="testpmd-vhost-user", marks=needs_dpdk),
    pytest.param("testpmd", "veth", id="testpmd-veth", marks=needs_dpdk),
]


@pytest.mark.parametrize(("driver", "cable"), BEDS)
def test_frames_pass_and_are_counted(driver: str, cable: str) -> None:
    loads = [
        {"frame": FRAME_64, "rate_fps": 2000},
        {"frame": IMIX, "rate_fps": 1000, "bidirectional": False, "flows": 100},
    ]
    told = bed(driver, cable, loads[:1], scenario={"frames": [FRAME_64, IMIX]})
    assert_forwards(told)
    sent = sum(way["sent_frames"] for way in told["trials"][0]["directions"])
    # The device's own counters: the trial's frames at least, besides those of the probe.
    assert told["counters"]["1.rx_frames"] + told["counters"]["2.rx_frames"] >= sent - told["trials"][0]["directions"][0]["refused_frames"]
    assert told["counters"]["1.tx_frames"] > 0
    record = told["record"]
    assert record["driver"] == driver
    assert record["versions"]
    assert {"1", "2"} <= set(record["ports"])
    assert bool(told["processes"]["dut"]) is (driver != "linux-bridge")
    one_way = bed(driver, cable, loads[1:], scenario={"frames": [FRAME_64, IMIX], "bidirectional": False})
    assert_forwards(one_way, ways=1)
