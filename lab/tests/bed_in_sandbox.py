"""Builds a test bed in a sandbox and offers it a few loads: the program that the tests of test beds start.

Reads a scenario and its loads as JSON from standard input; writes what came of it, or the error, as one line of JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringroad_lab import testbed
from ringroad_lab.dut.interface import DutPort, Rule
from ringroad_lab.dut.linux_bridge import LinuxBridge
from ringroad_lab.kinds import DUTS
from ringroad_lab.record import GeneratorCeiling
from ringroad_lab.scenario.model import Scenario
from ringroad_lab.testbed import Ceilings, TestBed
from ringroad_lab.trial import Load, TrialRequest
from sandboxed import answer


class CutBridge(LinuxBridge):
    """A bridge that is up, and forwards nothing."""

    driver = "cut-bridge"

    def configure(self, ports: Sequence[DutPort], rules: Sequence[Rule]) -> None:
        """Make the ports, and have them forward to addresses that are known, of which there are none."""
        super().configure(ports, rules)
        for port in ports:
            command = ["bridge", "-n", self._netns, "link", "set", "dev", port.cable.dut_end, "learning", "off", "flood", "off"]
            self._host.run([*command, "mcast_flood", "off"])


def offer(asked: dict[str, Any]) -> dict[str, Any]:
    scenario = Scenario.model_validate(asked["scenario"])
    # The generator's own ceiling has tests of its own.
    ceilings: Ceilings = {
        (scenario.generator.model_dump_json(), kind, frame.name): GeneratorCeiling(transport=kind, frame=frame, ceiling_fps=1e6)
        for kind in (scenario.physical,)
        for frame in scenario.frames
        if not asked.get("self_test")
    }
    if asked.get("cut"):
        vars(testbed)["DUTS"] = {**DUTS, CutBridge.driver: CutBridge}
        testbed.PROBE_TIMEOUT_S = 1.0
    steps: list[str] = []
    with TestBed(scenario, scenario.duts[0], ceilings=ceilings, on_step=steps.append) as bed:
        trials = []

        def run_trials() -> None:
            for load in asked["loads"]:
                if load.get("kill"):
                    for process in bed.processes()["dut"]:
                        process.stop(0.0)
                    continue
                request = TrialRequest(load=Load.model_validate(load), duration_s=asked["duration_s"])
                trials.append(bed.generator.trial(request).model_dump(mode="json"))
            bed.check()

        _, cost = bed.costs.over(run_trials)
        return {
            "steps": steps,
            "trials": trials,
            "record": bed.record().model_dump(mode="json"),
            "counters": bed.collect(),
            "busy_s": cost.busy_s,
            "ceilings": [ceiling.model_dump(mode="json") for ceiling in bed.ceilings.values() if ceiling],
            "logs": [log.source for log in bed.logs()],
            "processes": {part: [process.pid for process in processes] for part, processes in bed.processes().items()},
        }


if __name__ == "__main__":
    answer(offer)
