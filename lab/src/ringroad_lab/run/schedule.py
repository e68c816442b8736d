"""In which order the measurements of a scenario are made."""

from __future__ import annotations

from dataclasses import dataclass

from ringroad_lab.frame_size import FrameMix
from ringroad_lab.scenario.model import DutChoice, MethodChoice, Scenario


@dataclass(frozen=True)
class Step:
    """One measurement to be made."""

    number: int
    """Order in the run; the same for the same scenario, so that a run can be resumed."""
    method: MethodChoice
    frame: FrameMix


@dataclass(frozen=True)
class Round:
    """What is measured between one start of a device and its end."""

    dut: DutChoice
    repetition: int
    steps: tuple[Step, ...]


def schedule(scenario: Scenario) -> tuple[Round, ...]:
    """Lay out every measurement of a scenario.

    Each repetition starts every device anew. Every other repetition takes the devices in the opposite order, so that a machine that gets
    slower or faster by and by favours none of them.
    """
    rounds: list[Round] = []
    number = 0
    for repetition in range(scenario.repetitions):
        duts = scenario.duts if repetition % 2 == 0 else scenario.duts[::-1]
        for dut in duts:
            steps = []
            for method in scenario.methods:
                for frame in scenario.frames:
                    steps.append(Step(number, method, frame))
                    number += 1
            rounds.append(Round(dut, repetition, tuple(steps)))
    return tuple(rounds)
