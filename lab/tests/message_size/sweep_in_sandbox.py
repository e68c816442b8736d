"""Sweeps message sizes through a device in a sandbox: the program that the tests of sweeps start.

Reads driver, settings and processors as JSON from standard input; writes the result, or the error, as one line of JSON.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

from ringroad_lab.cable.interface import CableKind
from ringroad_lab.dut.interface import DUTS, Placement
from ringroad_lab.facts.witness import View, Witness
from ringroad_lab.host.local import LocalHost
from ringroad_lab.message_size.sweep import joined_stations, station_cable, sweep_message_sizes
from ringroad_lab.message_size.watch import SweepWatch
from ringroad_lab.method.interface import DisturbedRepeats
from ringroad_lab.method.message_size import MessageSizeSettings
from ringroad_lab.scenario.cpu_layout import lay_out_stations
from ringroad_lab.scenario.model import Cpus
from ringroad_lab.trial import DisturbanceLimits
from sandboxed import answer


def sweep(request: dict[str, Any]) -> dict[str, Any]:
    host = LocalHost()
    try:
        dut_type = DUTS[request["driver"]]
        settings = MessageSizeSettings.model_validate(request["settings"])
        usable = os.sched_getaffinity(0)
        layout = lay_out_stations(Cpus(), usable, settings)
        first, second = layout.guests
        dut = dut_type(dut_type.settings_type.model_validate(request["dut_settings"]), Placement(host, layout.dut, huge_pages=False))
        kind = station_cable(request["driver"], settings, CableKind(request["cable"]))
        with joined_stations(dut, kind, settings, (Placement(host, first), Placement(host, second))) as stations:
            if request["kill"]:
                stations[1].processes()[0].stop(0.0)
            limits = DisturbanceLimits()
            watch = SweepWatch(Witness(usable, limits.limit, view=View.outside()), DisturbedRepeats(limits))
            outcome = sweep_message_sizes(dut, stations, settings, watch)
            modes, counters = dut.port_modes(), dut.collect()
            versions = stations[0].versions()
            offloads = stations[1].run(["sh", "-c", "ethtool -k $(ls /sys/class/net | grep -v lo)"]).stdout
        left = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout.splitlines()
        netns = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
        return {
            "outcome": outcome.model_dump(mode="json"),
            "versions": versions,
            "offloads": offloads,
            "cable": kind,
            "modes": modes,
            "counters": counters,
            "links": len(left),
            "netns": netns,
        }
    finally:
        host.close()


if __name__ == "__main__":
    answer(sweep)
