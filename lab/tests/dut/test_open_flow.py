"""Settings of devices with OpenFlow rules, and devices without."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringroad_lab.dut.interface import Placement
from ringroad_lab.dut.linux_bridge import LinuxBridge, LinuxBridgeSettings
from ringroad_lab.dut.open_flow import OpenFlowSettings, flows_file_version, rule_flows
from ringroad_lab.dut.ringroad import RingroadSettings, RingroadSwitch
from ringroad_lab.errors import DutError
from ringroad_lab.host.local import LocalHost
from ringroad_lab.topology import Topology, wire

RULES = wire(Topology.P2P).rules


def test_user_flows_replace_the_flows_of_the_lab(tmp_path: Path) -> None:
    file = tmp_path / "my.flows"
    file.write_text("actions=drop\n")
    own, other = OpenFlowSettings(flows_file=file), OpenFlowSettings()
    assert rule_flows("switch", own, RULES) == "actions=drop\n"
    assert rule_flows("switch", other, RULES) == "in_port=1,actions=output:2\nin_port=2,actions=output:1\n"
    (first,) = flows_file_version("switch", own).values()
    file.write_text("actions=NORMAL\n")
    assert flows_file_version("switch", own) != {"flows_file (SHA-256)": first}
    assert flows_file_version("switch", other) == {}


def test_a_missing_flows_file_is_an_error() -> None:
    with pytest.raises(DutError, match="switch: flows_file /nonexistent cannot be read: No such file"):
        rule_flows("switch", OpenFlowSettings(flows_file=Path("/nonexistent")), RULES)


@pytest.mark.parametrize("settings", [LinuxBridgeSettings(), RingroadSettings(), RingroadSettings(forwarding="normal")])
def test_a_device_without_rules_rejects_flow_entries(settings: LinuxBridgeSettings | RingroadSettings) -> None:
    host = LocalHost()
    try:
        dut_type = RingroadSwitch if isinstance(settings, RingroadSettings) else LinuxBridge
        with pytest.raises(DutError, match=r'Linux bridge has no flow table|only with forwarding = "rules"'):
            dut_type(settings, Placement(host, frozenset())).install_flows(None)
    finally:
        host.close()
