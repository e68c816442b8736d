"""The order of a run's measurements."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.scenario.model import DutChoice, MethodChoice, Scenario
from ringroad_lab.scenario.schedule import schedule

COUNT = st.integers(min_value=1, max_value=4)


@given(duts=COUNT, repetitions=COUNT, methods=COUNT, frames=COUNT, pairs=st.integers(min_value=0, max_value=3), scenarios=COUNT)
def test_numbers_are_consecutive_and_every_device_has_a_turn_in_every_repetition(
    duts: int, repetitions: int, methods: int, frames: int, pairs: int, scenarios: int
) -> None:
    scenario = Scenario(
        name="any",
        duts=tuple(DutChoice(label=f"dut{number}", driver="any") for number in range(duts)),
        methods=tuple(MethodChoice(name=f"method{number}") for number in range(methods)),
        frames=tuple(parse_frame_mix(str(64 + number)) for number in range(frames)),
        repetitions=repetitions,
        noise_floor_pairs=pairs,
    )
    rounds = schedule((scenario,) * scenarios)
    numbers = [each.number for planned in rounds for each in planned.measurements]
    assert numbers == list(range(scenarios * (duts * repetitions + 2 * pairs) * methods * frames))
    for repetition in range(repetitions):
        measured = [planned.dut.label for planned in rounds if planned.repetition == repetition and not planned.is_noise_floor]
        assert sorted(measured) == sorted([dut.label for dut in scenario.duts] * scenarios)
    floor = [planned for planned in rounds if planned.is_noise_floor]
    assert [planned.repetition for planned in floor] == list(range(2 * pairs)) * scenarios
    assert {planned.dut.label for planned in floor} <= {"dut0"}
