"""All devices under test, by the names of their drivers."""

from __future__ import annotations

from ringroad_lab.dut.interface import Dut
from ringroad_lab.dut.linux_bridge import LinuxBridge
from ringroad_lab.dut.open_vswitch import Ovs, OvsDpdk
from ringroad_lab.dut.ringroad import RingroadSwitch
from ringroad_lab.dut.testpmd import Testpmd

DUTS: dict[str, type[Dut]] = {
    dut.driver: dut
    for dut in (
        LinuxBridge,
        Ovs,
        OvsDpdk,
        RingroadSwitch,
        Testpmd,
    )
}
