"""The order of a run's measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringroad_lab.frame_size import FrameMix
from ringroad_lab.method.interface import METHODS
from ringroad_lab.method.message_size import MESSAGES
from ringroad_lab.scenario.model import DutChoice, MethodChoice, Scenario
from ringroad_lab.statistics.interleave import turns


@dataclass(frozen=True)
class ScheduledMeasurement:
    """One measurement."""

    number: int
    """Order in the run; the same for the same scenarios, so that a run can be resumed."""
    method: MethodChoice
    frame: FrameMix
    is_between_stations: bool
    """Whether its method measures between two stations, without a test setup."""


@dataclass(frozen=True)
class Round:
    """The measurements between a start of a device and its end."""

    scenario: Scenario
    """With the device's own settings."""
    dut: DutChoice
    repetition: int
    is_noise_floor: bool
    """Whether it only measures the difference between two measurements of the same device."""
    measurements: tuple[ScheduledMeasurement, ...]


def schedule(scenarios: Sequence[Scenario]) -> tuple[Round, ...]:
    """Return all measurements of checked scenarios in order, one scenario after the other.

    Each repetition restarts every device, in turns. The pairs of the noise floor come last and use the first device.
    """
    rounds: list[Round] = []
    number = 0
    for scenario in scenarios:
        duts = {dut.label: dut for dut in scenario.duts}
        order = [
            (duts[label], repetition, False) for repetition, turn in enumerate(turns(tuple(duts), scenario.repetitions)) for label in turn
        ]
        order += [(scenario.duts[0], start, True) for start in range(2 * scenario.noise_floor_pairs)]
        for dut, repetition, is_noise_floor in order:
            measurements = []
            own = scenario.of(dut)
            for method in own.methods:
                kind = METHODS.get(method.name)
                is_between_stations = kind is not None and kind.is_between_stations
                for frame in (MESSAGES,) if is_between_stations else own.frames:
                    measurements.append(ScheduledMeasurement(number, method, frame, is_between_stations))
                    number += 1
            rounds.append(Round(own, dut, repetition, is_noise_floor, tuple(measurements)))
    return tuple(rounds)
