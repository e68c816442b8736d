"""The simulated device behaves as specified: all other tests depend on it."""

from __future__ import annotations

import pytest

from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.trial import AddressPlan, Load, TrialRequest, TrialResult
from simulated_generator import FullTable, SimulatedDut, SimulatedGenerator


def offer(generator: SimulatedGenerator, rate_fps: float, duration_s: float = 1.0, **load: object) -> TrialResult:
    """Offer a load."""
    return generator.trial(
        TrialRequest(load=Load.model_validate({"frame": parse_frame_mix("64"), "rate_fps": rate_fps, **load}), duration_s=duration_s)
    )


def test_sharp_device_loses_frames_above_its_capacity() -> None:
    generator = SimulatedGenerator(SimulatedDut(capacity_fps=1000))
    assert offer(generator, 1000).lost_frames == 0
    assert offer(generator, 1500).lost_frames == 2 * 500


def test_soft_device_loses_a_little_below_it_and_forwards_no_more_above() -> None:
    generator = SimulatedGenerator(SimulatedDut(capacity_fps=100_000, softness=0.2))
    assert offer(generator, 79_000).lost_frames == 0
    assert 0 < offer(generator, 100_000).loss_ratio < 0.06
    assert offer(generator, 200_000).forwarded_fps == pytest.approx(100_000, rel=0.001)


def test_buffer_holds_its_number_of_frames() -> None:
    generator = SimulatedGenerator(SimulatedDut(capacity_fps=1000, buffer_frames=500))
    assert offer(generator, 2000, burst_frames=1000, bidirectional=False).lost_frames == 0
    assert offer(generator, 2000, burst_frames=1100, bidirectional=False).lost_frames == 50


def test_same_seed_same_trials() -> None:
    dut = SimulatedDut(capacity_fps=1000, random_loss_ratio=0.1, bad_trial_ratio=0.5, capacity_deviation=0.1)
    runs = [[offer(generator, 1100) for _ in range(5)] for generator in (SimulatedGenerator(dut, seed=s) for s in (1, 1, 2))]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("full_table", list(FullTable))
def test_table_filters_known_addresses_and_floods_others(full_table: FullTable) -> None:
    generator = SimulatedGenerator(SimulatedDut(capacity_fps=1e6, table_size=100, full_table=full_table))
    common = {"bidirectional": False, "stations": 150, "burst_frames": 150}
    assert offer(generator, 1000, addresses=AddressPlan.RETURNED, **common).lost_frames == 0
    offer(generator, 1000, addresses=AddressPlan.SOURCES, **common)
    assert offer(generator, 1000, addresses=AddressPlan.RETURNED, **common).lost_frames == 100


def test_slow_learner_knows_a_part_of_the_addresses() -> None:
    generator = SimulatedGenerator(SimulatedDut(capacity_fps=1e6, table_size=1000, learning_fps=500))
    common = {"bidirectional": False, "stations": 100, "burst_frames": 100}
    offer(generator, 1000, addresses=AddressPlan.SOURCES, **common)
    assert offer(generator, 100, addresses=AddressPlan.RETURNED, **common).lost_frames == 50


def test_time_is_virtual_and_passes() -> None:
    generator = SimulatedGenerator(SimulatedDut(capacity_fps=1000), overhead_s=2.0)
    assert [offer(generator, 10, 60.0).started_at for _ in range(3)] == pytest.approx([0.0, 62.0, 124.0])


def test_dead_device_forwards_nothing_from_then_on() -> None:
    generator = SimulatedGenerator(SimulatedDut(capacity_fps=1000, dies_at_trial=2))
    assert [offer(generator, 10).loss_ratio for _ in range(4)] == [0, 0, 1, 1]
