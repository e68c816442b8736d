"""Builds a test setup in a sandbox and offers it a few loads. The tests of test setups start this program.

Reads a scenario and its loads as JSON from standard input; writes the result, or the error, as one line of JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringroad_lab.cable.interface import CABLES, Cable, CableType
from ringroad_lab.dut.interface import DUTS, DutPort, Rule
from ringroad_lab.dut.linux_bridge import LinuxBridge
from ringroad_lab.record import GeneratorCeiling
from ringroad_lab.scenario.model import Scenario
from ringroad_lab.setup import drivers, test_setup
from ringroad_lab.setup.ceilings import Ceilings
from ringroad_lab.setup.test_setup import TestSetup
from ringroad_lab.trial import FlowSet, Load, TrialRequest
from sandboxed import answer


class CutBridge(LinuxBridge):
    """A bridge that is up, and forwards nothing."""

    driver = "cut-bridge"

    def configure(self, ports: Sequence[DutPort], rules: Sequence[Rule]) -> None:
        """Create the ports, and disable learning and flooding: no address is known, so nothing is forwarded."""
        super().configure(ports, rules)
        for port in ports:
            command = ["bridge", "-n", self._netns, "link", "set", "dev", port.cable.dut_end, "learning", "off", "flood", "off"]
            self.host.run([*command, "mcast_flood", "off"])


def disturb(setup: TestSetup, commands: Sequence[str]) -> None:
    """Run commands that name the ends of the cables and the bridge's network namespace: `{dut1}`, `{far2}`, `{netns}`."""
    cables = [setup._dut.plugged_in(port.cable) for port in setup._ports]
    names = {"netns": cables[0].dut_netns or ""}
    for number, cable in enumerate(cables, 1):
        names |= {f"dut{number}": cable.dut_end, f"far{number}": cable.far_end}
    for command in commands:
        setup._dut.placement.host.run(command.format(**names).split())


def offer(request: dict[str, Any]) -> dict[str, Any]:
    scenario = Scenario.model_validate(request["scenario"])
    # Other tests cover the generator's ceiling.
    again: list[GeneratorCeiling] = []
    ceilings = Ceilings(again.append)
    ceilings.known |= {
        (scenario.generator.model_dump_json(), kind, frame.name): GeneratorCeiling(
            transport=kind, frame=frame, ceiling_fps=request.get("ceiling_fps", 1e6)
        )
        for kind in (scenario.physical,)
        for frame in scenario.frames
        if not request.get("self_test")
    }
    if request.get("cut"):
        vars(drivers)["DUTS"] = {**DUTS, CutBridge.driver: CutBridge}
        test_setup.PROBE_TIMEOUT_S = 1.0
    if ring_size := request.get("receiver_ring_size"):
        cable_type = CABLES[scenario.physical]
        usual = cable_type.generator_location

        def location(self: CableType, cable: Cable) -> str:
            return usual(self, cable) + (f",ring-size={ring_size}" if cable.name.endswith("p2") else "")

        setattr(cable_type, "generator_location", location)  # noqa: B010
    steps: list[str] = []
    with TestSetup(scenario, scenario.duts[0], ceilings=ceilings, on_step=steps.append) as setup:
        disturb(setup, request.get("disturb", []))
        trials = []
        loading_s: list[float] = []

        def run_trials() -> None:
            for load in request["loads"]:
                if load.get("kill"):
                    for process in setup.processes()["dut"]:
                        process.stop(0.0)
                    continue
                if flow_set := load.get("install"):
                    loading_s.append(setup.install_flows(FlowSet.model_validate(flow_set)))
                    continue
                trial = TrialRequest(load=Load.model_validate(load), duration_s=request["duration_s"])
                trials.append(setup.generator.trial(trial).model_dump(mode="json"))
            setup.check()

        _, cost = setup.costs.over(run_trials)
        return {
            "steps": steps,
            "trials": trials,
            "record": setup.record().model_dump(mode="json"),
            "counters": setup.collect(),
            "busy_s": cost.busy_s,
            "loading_s": loading_s,
            "ceilings": [
                ceiling.model_dump(mode="json")
                for ceiling in (*setup.ceilings.known.values(), *(each for each in again if each.cause))
                if ceiling
            ],
            "logs": [log.source for log in setup.logs()],
            "processes": {part: [process.pid for process in processes] for part, processes in setup.processes().items()},
        }


if __name__ == "__main__":
    answer(offer)
