"""RFC 2544 loss curves and RFC 2889 forwarding rates of simulated devices."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringroad_lab.method.forwarding_rate import ForwardingRateMethod, ForwardingRateSettings
from ringroad_lab.method.frame_loss import FrameLossMethod, FrameLossSettings
from ringroad_lab.method.trial_series import NO_WAITS
from ringroad_lab.record import MeasurementStatus
from ringroad_lab.trial import TrialResult
from simulated_bench import MAX_FPS, Bench, Scripted
from simulated_generator import SimulatedDut, SimulatedGenerator
from strict_settings import strict_method


@given(step=st.floats(0.01, 0.5))
def test_loads_go_down_from_the_greatest_and_stay_above_zero(step: float) -> None:
    ratios = FrameLossSettings(step_ratio=step).load_ratios()
    assert ratios[0] == 1.0
    assert all(0 < low < high for high, low in pairwise(ratios))
    assert ratios[-1] <= step * 1.000001


def test_ten_percent_steps_are_ten_loads() -> None:
    assert FrameLossSettings().load_ratios() == pytest.approx([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1])


def test_loss_curve_matches_the_device_and_ends_after_two_clean_loads() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=750_000)))
    outcome = FrameLossMethod(FrameLossSettings()).measure(bench.context)
    assert outcome.status is MeasurementStatus.OK
    points = dict(outcome.curves[0].points)
    assert points == pytest.approx({600_000: 0.0, 700_000: 0.0, 800_000: 1 / 16, 900_000: 1 / 6, MAX_FPS: 0.25})
    assert outcome.metrics["frame_loss_ratio"].value == pytest.approx(0.25)


def test_device_with_loss_at_every_load_has_a_complete_curve() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=MAX_FPS, random_loss_ratio=0.01)))
    outcome = FrameLossMethod(FrameLossSettings()).measure(bench.context)
    assert len(outcome.curves[0].points) == 10
    assert all(0 < ratio < 0.02 for _, ratio in outcome.curves[0].points)


def test_loads_that_the_generator_cannot_carry_are_not_points() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=MAX_FPS), ceiling_fps=850_000))
    outcome = FrameLossMethod(FrameLossSettings()).measure(bench.context)
    assert outcome.status is MeasurementStatus.INCONCLUSIVE
    assert [x for x, _ in outcome.curves[0].points] == pytest.approx([700_000, 800_000])
    assert outcome.headline == ""
    assert len(outcome.reasons) == 2


def test_generator_that_carries_nothing_and_device_that_forwards_nothing_are_invalid() -> None:
    for generator in (
        SimulatedGenerator(SimulatedDut(capacity_fps=MAX_FPS), ceiling_fps=10),
        SimulatedGenerator(SimulatedDut(capacity_fps=MAX_FPS, dies_at_trial=1)),
    ):
        for method in (FrameLossMethod(FrameLossSettings(step_ratio=0.2)), ForwardingRateMethod(ForwardingRateSettings())):
            outcome = method.measure(Bench(generator).context)
            assert outcome.status is MeasurementStatus.INVALID
            assert outcome.reasons
            assert outcome.metrics == {}


def test_forwarding_rates_of_an_overloaded_device() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=640_000)))
    outcome = ForwardingRateMethod(ForwardingRateSettings()).measure(bench.context)
    assert outcome.status is MeasurementStatus.OK
    assert outcome.headline == "frmol_fps"
    assert outcome.metrics["frmol_fps"].value == pytest.approx(640_000)
    assert outcome.metrics["mfr_fps"].value == pytest.approx(640_000)
    # 600000 frames/s cannot have a higher forwarding rate.
    assert min(bench.rates("forwarding-rate")) == pytest.approx(700_000)


def test_maximum_forwarding_rate_of_a_device_that_collapses_is_below_the_greatest_load() -> None:
    def collapse(_: int, result: TrialResult) -> TrialResult:
        if result.request.load.rate_fps <= 700_001:
            return result
        return result.model_copy(
            update={"directions": tuple(d.model_copy(update={"received_frames": d.sent_frames // 5}) for d in result.directions)}
        )

    outcome = ForwardingRateMethod(ForwardingRateSettings()).measure(
        Bench(Scripted(SimulatedDut(capacity_fps=2 * MAX_FPS), collapse)).context
    )
    assert outcome.metrics["frmol_fps"].value == pytest.approx(200_000)
    assert outcome.metrics["mfr_fps"].value == pytest.approx(700_000)


def test_forwarding_all_at_the_generators_ceiling_is_a_lower_bound() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=2 * MAX_FPS)), is_max_generator_bound=True)
    assert ForwardingRateMethod(ForwardingRateSettings()).measure(bench.context).status is MeasurementStatus.LOWER_BOUND


def test_deviations() -> None:
    assert strict_method("frame-loss").deviations() == (NO_WAITS,)
    assert len(FrameLossMethod(FrameLossSettings(step_ratio=0.2, clean_trials=1)).deviations()) == 4
    assert strict_method("forwarding-rate").deviations() == (NO_WAITS,)
    assert len(ForwardingRateMethod(ForwardingRateSettings()).deviations()) == 2


def test_clean_loads_must_be_consecutive() -> None:
    # Clean at 100 and 80 % of the greatest load, not between.
    def lose_at_ninety(_: int, result: TrialResult) -> TrialResult:
        if abs(result.request.load.rate_fps - 900_000) > 1:
            return result
        return result.model_copy(update={"directions": tuple(d.model_copy(update={"received_frames": 1}) for d in result.directions)})

    bench = Bench(Scripted(SimulatedDut(capacity_fps=2 * MAX_FPS), lose_at_ninety))
    FrameLossMethod(FrameLossSettings()).measure(bench.context)
    assert min(bench.rates("frame-loss")) == pytest.approx(700_000)
