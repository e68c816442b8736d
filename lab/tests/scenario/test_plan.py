"""The plan of a run: steps, order, duration, and required programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ringroad_lab.host.local import LocalHost
from ringroad_lab.method.interface import METHODS
from ringroad_lab.method.throughput import ThroughputSettings
from ringroad_lab.scenario.layers import command_line_layers
from ringroad_lab.scenario.library import Library
from ringroad_lab.scenario.model import Scenario
from ringroad_lab.scenario.plan import TRIAL_OVERHEAD_S, plan
from ringroad_lab.scenario.requirements import required_programs
from ringroad_lab.scenario.resolve import resolve


def scenarios(name: str, *assignments: str) -> tuple[Scenario, ...]:
    return resolve(Library(Path("/nonexistent"), "here"), name, command_line_layers(assignments)).scenarios


def test_devices_take_turns_and_the_noise_floor_comes_last() -> None:
    planned = plan(scenarios("compare-switches", "duts=[ovs, ringroad]", "repetitions=3", "noise_floor_pairs=1"))
    assert [(start.dut.label, start.repetition, start.is_noise_floor) for start in planned.starts] == [
        ("ovs", 0, False),
        ("ringroad", 0, False),
        ("ringroad", 1, False),
        ("ovs", 1, False),
        ("ovs", 2, False),
        ("ringroad", 2, False),
        ("ovs", 0, True),
        ("ovs", 1, True),
    ]


def test_each_start_measures_all_methods_and_frames() -> None:
    planned = plan(scenarios("compare-switches", "methods=[throughput, latency]", "frames=[64, imix]", "duts=[ovs]"))
    assert [(each.method, each.frame.name) for each in planned.starts[0].measurements] == [
        ("throughput", "64"),
        ("throughput", "imix"),
        ("latency", "64"),
        ("latency", "imix"),
    ]
    assert planned.measurements == 4


def test_topologies_follow_each_other() -> None:
    planned = plan(scenarios("OVS_DPDK1q_GUEST_DPDK1q", "repetitions=1"))
    assert [start.scenario.topology for start in planned.starts] == ["P2P", "PVP"]
    assert planned.starts[1].expected_s > planned.starts[0].expected_s


def test_times_and_trials_come_from_the_methods() -> None:
    one = scenarios("compare-switches", "duts=[ovs]", "methods=[frame-loss]", "frames=[64]")
    method = METHODS["frame-loss"]
    planned = plan(one).starts[0].measurements[0]
    assert planned.expected_s == pytest.approx(method(method.settings_type()).expected_s(TRIAL_OVERHEAD_S))
    # A warm-up and loads from 100 % to 10 %.
    assert planned.trials == 11


def test_a_search_is_planned_once_in_each_start() -> None:
    assignments = ("duts=[ovs]", "frames=[64]", "repetitions=1")
    alone, after = (
        plan(scenarios("compare-switches", *assignments, methods)).starts[0].measurements[-1]
        for methods in ("methods=[latency]", "methods=[throughput, latency]")
    )
    search_s = ThroughputSettings().expected_s(TRIAL_OVERHEAD_S)
    assert alone.expected_s - after.expected_s == pytest.approx(search_s)
    assert alone.trials > after.trials


def test_only_methods_that_need_the_self_test_plan_it() -> None:
    assert plan(scenarios("compare-switches")).self_test_s > 0
    assert plan(scenarios("MESSAGE_SIZES")).self_test_s == 0
    cards = 'host.local.nics=[{generator_interface = "a", dut_interface = "b"}, {generator_interface = "c", dut_interface = "d"}]'
    assert plan(scenarios("OVS_VANILLA", "physical=nic", "private=false", cards)).self_test_s == 0


def test_the_plan_names_the_cables_of_stations() -> None:
    planned = plan(scenarios("MESSAGE_SIZES_GUESTS"))
    assert {start.dut.label: start.cables for start in planned.starts} == {
        "linux-bridge": ("tap",),
        "ovs-dpdk": ("vhost-user",),
        "testpmd": ("vhost-user",),
        "ringroad": ("vhost-user",),
    }
    assert {start.cables for start in plan(scenarios("LIVE_MIGRATION")).starts} == {("tap",), ("vhost-user",)}
    ends = ("duts=[ringroad]", "dut.ringroad.physical=netmap")
    assert plan(scenarios("MESSAGE_SIZES_GUESTS", *ends)).starts[0].cables == ("netmap",)
    both = plan(scenarios("MESSAGE_SIZES", "methods=[throughput, message-size]", "physical=memif", "duts=[ringroad]"))
    assert both.starts[0].cables == ("memif", "veth")


def test_the_estimate_is_near_the_measured_time() -> None:
    # Six to eight minutes on two processors that other programs use now and then.
    assert 330 < plan(scenarios("compare-switches")).expected_s < 480


def test_deviations_from_the_rfcs_are_reported() -> None:
    assert any("60 s" in sentence for sentence in plan(scenarios("compare-switches")).deviations)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    made = LocalHost(tmp_path)
    yield made
    made.close()


def test_all_programs_are_looked_up_and_none_is_started(host: LocalHost, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {path.program: path for path in required_programs(scenarios("compare-switches"), host)}
    assert found["ip"].path is not None
    assert {"ovs-vsctl", "ovsdb-server", "ip"} <= found.keys()
    assert found["ovs-vsctl"].package == "openvswitch-switch"
    # All missing programs are reported, not only the first.
    monkeypatch.setattr(LocalHost, "find_program", lambda _self, _program: None)
    missing = required_programs(scenarios("compare-switches"), host)
    assert all(program.path is None for program in missing)
    assert {"ovs-vsctl", "ovsdb-server", "ovs-ofctl", "ip"} <= {program.program for program in missing}


def test_programs_of_guests_are_looked_up(host: LocalHost) -> None:
    programs = {each.program for each in required_programs(scenarios("RINGROAD_VHOST1q_GUEST_DPDK1q"), host)}
    assert "dpdk-testpmd" in programs
