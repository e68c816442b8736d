"""Methods with frames lost outside the device: the result of the device is at most a lower bound, and every search ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ringroad_lab.method.forwarding_rate import ForwardingRateMethod, ForwardingRateSettings
from ringroad_lab.method.frame_loss import FrameLossMethod, FrameLossSettings
from ringroad_lab.method.interface import Method
from ringroad_lab.method.mlrsearch import LossGoal, MlrSearchMethod, MlrSearchSettings
from ringroad_lab.method.soak import SoakMethod, SoakSettings
from ringroad_lab.method.throughput import ThroughputMethod, ThroughputSettings
from ringroad_lab.record import MeasurementStatus
from ringroad_lab.trial import DirectionCounts, LossByPlace, TrialResult
from simulated_bench import Bench, Scripted
from simulated_generator import SimulatedDut

LIMIT_FPS = 400_000.0
"""Rate that the set-up carries to the device and back."""


def beyond_the_set_up(place: str, limits_fps: Sequence[float] = (LIMIT_FPS,)) -> Scripted:
    """Return a generator with a set-up that loses frames above its limit at a place; the device's own losses are booked as its own.

    The limits apply to one trial after the other, and the last limit to all later trials.
    """

    def change(number: int, result: TrialResult) -> TrialResult:
        part = min(1.0, limits_fps[min(number, len(limits_fps) - 1)] / result.request.load.rate_fps)

        def booked(way: DirectionCounts) -> DirectionCounts:
            outside = way.sent_frames - int(way.sent_frames * part)
            received = max(0, way.received_frames - outside)
            nowhere = {"refused": 0, "before_device": 0, "in_guests": 0, "behind_device": 0, "at_receiver": 0, "unexplained": 0}
            found = nowhere | {place: outside, "in_device": way.sent_frames - outside - received}
            return way.model_copy(update={"received_frames": received, "loss": LossByPlace.model_validate(found)})

        return result.model_copy(update={"directions": tuple(map(booked, result.directions))})

    return Scripted(SimulatedDut(capacity_fps=2e6), change)


def measured(method: Method, place: str, capacity_fps: float = 2e6) -> tuple[Bench, MeasurementStatus, tuple[str, ...], dict[str, float]]:
    generator = beyond_the_set_up(place)
    generator._inner.dut = SimulatedDut(capacity_fps=capacity_fps)
    bench = Bench(generator)
    outcome = method.measure(bench.context)
    return bench, outcome.status, outcome.reasons, {name: metric.value for name, metric in outcome.metrics.items()}


OUTSIDE = pytest.mark.parametrize("place", ["refused", "before_device", "behind_device", "at_receiver"])


@OUTSIDE
def test_throughput_is_a_lower_bound_with_the_place_as_reason(place: str) -> None:
    bench, status, reasons, metrics = measured(ThroughputMethod(ThroughputSettings()), place)
    assert status is MeasurementStatus.LOWER_BOUND
    assert "frames were lost outside the device: " in reasons[0]
    assert 0.98 * LIMIT_FPS <= metrics["throughput_fps"] <= LIMIT_FPS
    assert len(bench.trials) < 100


def test_throughput_below_the_limit_of_the_set_up_is_the_devices() -> None:
    _, status, _, metrics = measured(ThroughputMethod(ThroughputSettings()), "at_receiver", capacity_fps=200_000.0)
    assert status is MeasurementStatus.OK
    assert metrics["throughput_fps"] == pytest.approx(200_000.0, rel=0.02)


@pytest.mark.parametrize("limits_fps", [(0.7e6, 0.8e6, 0.75e6), (0.8e6, 0.7e6, 0.75e6), (0.7e6, 0.75e6, 0.8e6)])
def test_a_forwarding_rate_that_is_a_lower_bound_is_the_greatest_of_its_trials(limits_fps: tuple[float, ...]) -> None:
    # The first trial is the warm-up.
    bench = Bench(beyond_the_set_up("refused", (0.1e6, *limits_fps)))
    outcome = ForwardingRateMethod(ForwardingRateSettings()).measure(bench.context)
    assert outcome.status is MeasurementStatus.LOWER_BOUND
    assert outcome.metrics["mfr_fps"].value == pytest.approx(0.8e6, rel=0.01)


@OUTSIDE
def test_mlrsearch_continues_below_and_reports_a_lower_bound(place: str) -> None:
    goal = LossGoal(name="ndr", loss_ratio=0.0, duration_sum_s=1.0)
    _, status, reasons, metrics = measured(MlrSearchMethod(MlrSearchSettings(goals=(goal,))), place)
    assert status is MeasurementStatus.LOWER_BOUND
    assert "frames were lost outside the device: " in reasons[0]
    assert 0.9 * LIMIT_FPS <= metrics["ndr_lower_bound_fps"] <= LIMIT_FPS


@OUTSIDE
def test_a_loss_curve_has_no_point_for_loss_outside_the_device(place: str) -> None:
    _, status, reasons, metrics = measured(FrameLossMethod(FrameLossSettings()), place)
    assert status is MeasurementStatus.INCONCLUSIVE
    assert "frame_loss_ratio" not in metrics
    assert "frames were lost outside the device: " in reasons[0]


@OUTSIDE
def test_forwarding_rates_are_lower_bounds(place: str) -> None:
    _, status, reasons, metrics = measured(ForwardingRateMethod(ForwardingRateSettings()), place)
    assert status is MeasurementStatus.LOWER_BOUND
    assert "the device may forward more than arrived: frames were lost outside the device: " in reasons[0]
    assert metrics["frmol_fps"] == pytest.approx(LIMIT_FPS, rel=0.01)


def test_a_soak_counts_only_frames_lost_in_the_device() -> None:
    soak = SoakMethod(SoakSettings(duration_s=20.0))
    _, status, _, metrics = measured(soak, "at_receiver")
    assert status is MeasurementStatus.OK
    assert metrics["soak_lost_frames"] == 0
