"""Loads a device with TCP in a sandbox: the program that the tests of `tcp-load` start.

Reads driver and settings as JSON from standard input; writes the result, or the error, as one line of JSON.
"""

from __future__ import annotations

import os
from typing import Any

from ringroad_lab.dut.interface import DUTS, Placement
from ringroad_lab.facts.witness import View, Witness
from ringroad_lab.host.local import LocalHost
from ringroad_lab.message_size.sweep import joined_stations, measure_tcp_load, station_cable
from ringroad_lab.message_size.watch import SweepWatch
from ringroad_lab.method.interface import DisturbedRepeats
from ringroad_lab.method.tcp_load import TcpLoadSettings
from ringroad_lab.trial import DisturbanceLimits
from sandboxed import answer


def load(request: dict[str, Any]) -> dict[str, Any]:
    host = LocalHost()
    try:
        dut_type = DUTS[request["driver"]]
        usable = os.sched_getaffinity(0)
        dut = dut_type(dut_type.settings_type(), Placement(host, frozenset({max(usable)}), huge_pages=False))
        settings = TcpLoadSettings.model_validate(request["settings"])
        placement = Placement(host, frozenset({min(usable)}))
        with joined_stations(dut, station_cable(request["driver"], settings), settings, (placement, placement)) as stations:
            before = dut.collect()
            limits = DisturbanceLimits()
            watch = SweepWatch(Witness(usable, limits.limit, view=View.outside()), DisturbedRepeats(limits))
            outcome = measure_tcp_load(dut, stations, settings, watch)
            after = dut.collect()
        grown = {name: after[name] - before.get(name, 0) for name in after}
        return {"outcome": outcome.model_dump(mode="json"), "counters": grown}
    finally:
        host.close()


if __name__ == "__main__":
    answer(load)
