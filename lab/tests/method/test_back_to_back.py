"""RFC 9004 bursts, RFC 2544 recovery and soaks of simulated devices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringroad_lab.method.back_to_back import BackToBackMethod, BackToBackSettings
from ringroad_lab.method.recovery import RecoveryMethod, RecoverySettings
from ringroad_lab.method.soak import SoakMethod, SoakSettings
from ringroad_lab.record import MeasurementStatus
from ringroad_lab.trial import TrialResult
from simulated_bench import MAX_FPS, Bench, Scripted
from simulated_generator import SimulatedDut, SimulatedGenerator
from strict_settings import strict_method, strict_settings


@given(buffer_frames=st.integers(1, 100_000), capacity_ratio=st.floats(0.1, 0.9))
def test_corrected_buffer_time_matches_the_buffer(buffer_frames: int, capacity_ratio: float) -> None:
    capacity_fps = capacity_ratio * MAX_FPS
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=capacity_fps, buffer_frames=buffer_frames)), throughput_fps=capacity_fps)
    outcome = BackToBackMethod(BackToBackSettings(repeats=2, resolution=0.0)).measure(bench.context)
    assert outcome.status is MeasurementStatus.OK
    # While a burst of b frames arrives, b * capacity / rate frames leave; one frame more is lost completely.
    longest = buffer_frames / (1 - capacity_ratio)
    assert outcome.metrics["back_to_back_frames"].value == pytest.approx(longest, abs=1 / (1 - capacity_ratio) + 1)
    assert outcome.metrics["implied_buffer_s"].value == pytest.approx(outcome.metrics["back_to_back_frames"].value / MAX_FPS)
    assert outcome.metrics["corrected_buffer_s"].value == pytest.approx(buffer_frames / MAX_FPS, abs=2.1 / MAX_FPS)
    assert outcome.metrics["back_to_back_deviation_frames"].value == 0
    assert all(trial.request.load.burst_frames for trial in bench.trials)


def test_noisy_buffer_shows_its_spread() -> None:
    dut = SimulatedDut(capacity_fps=500_000, buffer_frames=1000, capacity_deviation=0.02)
    bench = Bench(SimulatedGenerator(dut, seed=3), throughput_fps=500_000)
    metrics = BackToBackMethod(BackToBackSettings(repeats=20)).measure(bench.context).metrics
    assert metrics["back_to_back_min_frames"].value < metrics["back_to_back_frames"].value < metrics["back_to_back_max_frames"].value
    assert metrics["back_to_back_deviation_frames"].value > 0


def test_device_without_loss_gives_a_lower_bound() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=2 * MAX_FPS)), throughput_fps=MAX_FPS)
    outcome = BackToBackMethod(BackToBackSettings()).measure(bench.context)
    assert outcome.status is MeasurementStatus.LOWER_BOUND
    assert outcome.metrics["back_to_back_frames"].value == 2 * MAX_FPS


def test_bursts_that_the_generator_cannot_send_give_a_lower_bound() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=MAX_FPS), ceiling_fps=MAX_FPS / 2, is_stubborn=True), throughput_fps=1000)
    outcome = BackToBackMethod(BackToBackSettings(repeats=1)).measure(bench.context)
    # The duration of bursts of a few milliseconds cannot be checked; the duration of longer bursts can.
    assert outcome.status is MeasurementStatus.LOWER_BOUND
    assert "cannot send" in outcome.reasons[0]


def test_device_that_loses_single_frames_has_no_burst() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=MAX_FPS, random_loss_ratio=1.0)), throughput_fps=1000)
    outcome = BackToBackMethod(BackToBackSettings(repeats=1)).measure(bench.context)
    assert outcome.status in (MeasurementStatus.INVALID, MeasurementStatus.INCONCLUSIVE)
    assert outcome.metrics == {}


def test_back_to_back_finds_the_drain_rate_itself() -> None:
    outcome = BackToBackMethod(BackToBackSettings(repeats=1)).measure(
        Bench(SimulatedGenerator(SimulatedDut(capacity_fps=400_000, buffer_frames=600))).context
    )
    assert outcome.metrics["throughput_fps"].value == pytest.approx(400_000, rel=0.011)
    assert outcome.metrics["corrected_buffer_s"].value == pytest.approx(600e-6, rel=0.05)


def test_recovery_is_at_most_the_devices_time_and_two_probes() -> None:
    generator = SimulatedGenerator(SimulatedDut(capacity_fps=500_000, recovery_s=3.0), overhead_s=0.1)
    outcome = RecoveryMethod(RecoverySettings()).measure(Bench(generator, throughput_fps=500_000).context)
    assert outcome.status is MeasurementStatus.OK
    assert 3.0 <= outcome.metrics["recovery_at_most_s"].value <= 3.0 + 2 * (0.2 + 0.1)
    assert outcome.metrics["overload_fps"].value == pytest.approx(550_000)


def test_recovery_of_a_device_that_is_not_overloaded_or_never_recovers_is_inconclusive() -> None:
    at_ease = SimulatedGenerator(SimulatedDut(capacity_fps=2 * MAX_FPS))
    outcome = RecoveryMethod(RecoverySettings()).measure(Bench(at_ease, throughput_fps=MAX_FPS).context)
    assert outcome.status is MeasurementStatus.INCONCLUSIVE
    assert "nothing to recover from" in outcome.reasons[0]
    lossy = SimulatedGenerator(SimulatedDut(capacity_fps=500_000, random_loss_ratio=0.01))
    outcome = RecoveryMethod(RecoverySettings()).measure(Bench(lossy, throughput_fps=500_000).context)
    assert outcome.status is MeasurementStatus.INCONCLUSIVE
    assert "still loses" in outcome.reasons[0]


def test_soak_shows_when_frames_were_lost() -> None:
    generator = SimulatedGenerator(SimulatedDut(capacity_fps=500_000, bad_trial_ratio=0.1), seed=1)
    bench = Bench(generator, throughput_fps=500_000)
    outcome = SoakMethod(SoakSettings(duration_s=250)).measure(bench.context)
    assert outcome.status is MeasurementStatus.OK
    assert bench.rates("soak") == [450_000] * 50
    lost = [frames for _, frames in outcome.curves[0].points]
    assert outcome.metrics["soak_loss_events"].value == sum(1 for frames in lost if frames) > 0
    assert outcome.metrics["soak_lost_frames"].value == sum(lost) == sum(trial.lost_frames for trial in bench.trials)
    assert outcome.metrics["soak_loss_ratio"].value == pytest.approx(sum(lost) / (50 * 2 * 5 * 450_000))


def test_soak_of_a_device_that_dies_is_invalid() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=500_000, dies_at_trial=20)), throughput_fps=500_000)
    outcome = SoakMethod(SoakSettings(duration_s=250)).measure(bench.context)
    assert outcome.status is MeasurementStatus.INVALID
    # The check whether it is dead is repeated, and then no more trials follow.
    assert len(bench.trials) == 21 + len(bench.rates("alive")) < 30


def test_recovery_time_restarts_at_each_loss() -> None:
    # The second trial after the overload loses frames.
    def lose_second(number: int, result: TrialResult) -> TrialResult:
        if number != 2:
            return result
        return result.model_copy(update={"directions": tuple(d.model_copy(update={"received_frames": 1}) for d in result.directions)})

    bench = Bench(Scripted(SimulatedDut(capacity_fps=500_000), lose_second), throughput_fps=500_000)
    outcome = RecoveryMethod(RecoverySettings()).measure(bench.context)
    assert len(bench.rates("recovery")) == 4
    # The third begins after two trials of 0.2 s, and three pauses of 1 s.
    assert outcome.metrics["recovery_at_most_s"].value == pytest.approx(3.4)


def test_recovery_reports_its_differences_from_the_rfc() -> None:
    strict = len(strict_method("recovery").deviations())
    for chosen in ({"overload_ratio": 1.5}, {"recovery_ratio": 0.9}, {"overload_s": 1.0}):
        settings = strict_settings("recovery", RecoverySettings).model_copy(update=chosen)
        assert len(RecoveryMethod(settings).deviations()) == strict + 1
