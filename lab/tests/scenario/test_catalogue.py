"""The scenarios and layers that come with the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringroad_lab.method.interface import METHODS
from ringroad_lab.method.throughput import ThroughputSettings
from ringroad_lab.scenario.library import Library
from ringroad_lab.scenario.overview import summaries
from ringroad_lab.scenario.plan import plan
from ringroad_lab.scenario.resolve import resolve

LIBRARY = Library(Path("/nonexistent"), "here")
# The table of chapter 5.3.1 of the thesis: topologies, queues, device, guest; and by its chapter 6.3 the accepted loss.
THESIS = {
    "OVS_DPDK1q_GUEST_DPDK1q": (["P2P", "PVP"], 1, "ovs-dpdk", "testpmd", 0.0),
    "OVS_VANILLA_GUEST_linuxbridge": (["P2P", "PVP"], 1, "ovs", "linux-bridge", 0.00001),
    "OVS_DPDK1q_GUEST_linuxbridge": (["P2P", "PVP"], 1, "ovs-dpdk", "linux-bridge", 0.0),
    "OVS_DPDK2q": (["P2P"], 2, "ovs-dpdk", None, 0.0),
    "OVS_DPDK4q": (["P2P"], 4, "ovs-dpdk", None, 0.0),
    "OVS_DPDK2q_GUEST_DPDK2q": (["P2P", "PVP"], 2, "ovs-dpdk", "testpmd", 0.0),
    "OVS_DPDK4q_GUEST_DPDK4q": (["P2P", "PVP"], 4, "ovs-dpdk", "testpmd", 0.0),
}


def accepted_loss(name: str, layers: tuple[str, ...] = ()) -> float:
    (method,) = resolve(LIBRARY, name, [LIBRARY.user_layer(layer) for layer in layers]).scenarios[0].methods
    return ThroughputSettings.model_validate(method.settings).acceptable_loss_ratio


@pytest.mark.parametrize("name", LIBRARY.scenario_files())
@pytest.mark.parametrize("profile", [None, *LIBRARY.profiles()])
def test_every_scenario_can_be_planned_with_every_profile(name: str, profile: str | None) -> None:
    found = resolve(LIBRARY, name, [LIBRARY.user_layer(profile)] if profile else [])
    assert found.title
    assert plan(found.scenarios).expected_s > 0


@pytest.mark.parametrize("name", THESIS)
def test_the_thesis_names_keep_their_meaning(name: str) -> None:
    topologies, queues, driver, guest, loss = THESIS[name]
    scenarios = resolve(LIBRARY, name).scenarios
    assert [scenario.topology for scenario in scenarios] == topologies
    assert {scenario.queues for scenario in scenarios} == {queues}
    assert {dut.driver for scenario in scenarios for dut in scenario.duts} == {driver}
    assert scenarios[-1].guest == guest
    assert [frame.parts for frame in scenarios[0].frames] == [((size, 1),) for size in (64, 576, 1280, 1500)]
    assert accepted_loss(name) == loss


@pytest.mark.parametrize("guest", ["", "_GUEST_linuxbridge"])
def test_devices_without_dpdk_have_the_same_accepted_loss_and_none_by_the_rfc(guest: str) -> None:
    for name in ("OVS_VANILLA", "BRIDGE_VETH", "RINGROAD_VETH"):
        assert accepted_loss(name + guest) == 0.00001
        assert accepted_loss(name + guest, ("rfc2544",)) == 0.0


def test_the_demonstration_has_four_switches() -> None:
    found = resolve(LIBRARY, "compare-switches")
    assert {dut.driver for dut in found.scenarios[0].duts} == {"linux-bridge", "ovs", "ovs-dpdk", "ringroad"}
    assert [frame.name for frame in found.scenarios[0].frames] == ["64", "512", "1518"]


def test_the_quick_profile_is_faster() -> None:
    layer = LIBRARY.user_layer("quick")
    for name, settings in layer.document.tree["method"].items():
        method = METHODS[name]
        quick = method(method.settings_type.model_validate(settings)).expected_s(0.5)
        assert quick < method(method.settings_type()).expected_s(0.5) / 2, name


def test_an_invalid_scenario_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios/broken.toml").write_text("queues =\n")
    (tmp_path / "scenarios/wrong.toml").write_text("queues = 0\n")
    (tmp_path / "scenarios/readme.txt").write_text("not one")
    found = {summary.name: summary for summary in summaries(Library(tmp_path, "here"))}
    assert "not TOML" in found["broken"].problem
    assert "queues" in found["wrong"].problem
    assert found["compare-switches"].problem == ""
    assert "readme" not in found
