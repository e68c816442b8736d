"""RFC 2544 latency of simulated devices."""

from __future__ import annotations

import pytest

from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.method.latency import LatencyMethod, LatencySettings, worst_latency
from ringroad_lab.record import Better, MeasurementStatus
from ringroad_lab.trial import DirectionCounts, LatencySummary, Load, TrialRequest, TrialResult, TrialVerdict
from simulated_bench import MAX_FPS, Bench, Scripted
from simulated_generator import SimulatedDut, SimulatedGenerator
from strict_settings import strict_method

DUT = SimulatedDut(capacity_fps=300_000, latency_ns=5_000)


def test_latency_at_each_load_and_without_load() -> None:
    bench = Bench(SimulatedGenerator(DUT))
    outcome = LatencyMethod(LatencySettings()).measure(bench.context)
    assert outcome.status is MeasurementStatus.OK
    assert outcome.headline == "latency_100pct_mean_ns"
    means = [outcome.metrics[f"latency_{load}_mean_ns"].value for load in ("unloaded", "10pct", "50pct", "90pct", "100pct")]
    assert means[0] == pytest.approx(5_000, rel=0.01)
    assert means == sorted(means)
    assert outcome.metrics["latency_90pct_p99.9_ns"].better is Better.LOWER
    # One curve for each load, with only the reported percentiles.
    assert len(outcome.curves) == 5
    assert [x for x, _ in outcome.curves[0].points] == [50.0, 90.0, 99.0, 99.9]


def test_a_known_throughput_is_not_measured_again() -> None:
    bench = Bench(SimulatedGenerator(DUT), throughput_fps=200_000)
    LatencyMethod(LatencySettings(load_ratios=(0.5,), unloaded_fps=None, repeats=4)).measure(bench.context)
    assert bench.rates("latency") == [100_000] * 4
    assert len(bench.trials) == 4


def test_loss_in_a_latency_trial_is_reported() -> None:
    # The known throughput is more than the device now forwards.
    bench = Bench(SimulatedGenerator(DUT), throughput_fps=400_000)
    outcome = LatencyMethod(LatencySettings(load_ratios=(1.0,))).measure(bench.context)
    assert outcome.status is MeasurementStatus.INCONCLUSIVE
    assert "lost frames" in outcome.reasons[0]


def test_percentiles_that_the_generator_does_not_report_are_not_invented() -> None:
    bench = Bench(SimulatedGenerator(DUT, tells_percentiles=False))
    outcome = LatencyMethod(LatencySettings()).measure(bench.context)
    assert outcome.curves == ()
    assert not any("_p" in name.removeprefix("latency_") and "pct_p" in name for name in outcome.metrics)
    assert outcome.metrics["latency_100pct_max_ns"].value > 0


def with_latency(result: TrialResult, latency: LatencySummary | None) -> TrialResult:
    """Return the trial with another latency."""
    return result.model_copy(update={"directions": tuple(d.model_copy(update={"latency": latency}) for d in result.directions)})


def test_percentiles_of_coarse_buckets_are_reported() -> None:
    coarse = LatencySummary(frames=1, min_ns=1, mean_ns=2, max_ns=3, percentiles_ns={"99": 3.0}, precision=0.5)
    bench = Bench(Scripted(DUT, lambda _, result: with_latency(result, coarse)), throughput_fps=1000)
    outcome = LatencyMethod(LatencySettings(load_ratios=(1.0,), unloaded_fps=None)).measure(bench.context)
    assert outcome.status is MeasurementStatus.INCONCLUSIVE
    assert "50%" in outcome.reasons[0]


def test_generator_without_latency_is_invalid() -> None:
    bench = Bench(Scripted(DUT, lambda _, result: with_latency(result, None)), throughput_fps=1000)
    outcome = LatencyMethod(LatencySettings()).measure(bench.context)
    assert outcome.status is MeasurementStatus.INVALID
    assert "reported none" in outcome.reasons[0]


def test_directions_are_combined_by_their_frames_and_the_worse_percentile() -> None:
    slow = LatencySummary(frames=1, min_ns=10, mean_ns=100, max_ns=1000, percentiles_ns={"50": 90.0, "99": 900.0}, precision=0.01)
    fast = LatencySummary(frames=3, min_ns=5, mean_ns=20, max_ns=50, percentiles_ns={"50": 20.0})
    counts = [
        DirectionCounts(sender="a", receiver="b", intended_frames=4, sent_frames=4, received_frames=4, transmit_s=1.0, latency=latency)
        for latency in (slow, fast)
    ]
    request = TrialRequest(load=Load(frame=parse_frame_mix("64"), rate_fps=4.0), duration_s=1.0)
    both = worst_latency(TrialResult(request=request, started_at=0.0, verdict=TrialVerdict.VALID, directions=tuple(counts)))
    assert both is not None
    assert (both.min_ns, both.mean_ns, both.max_ns) == (5, 40, 1000)
    assert both.percentiles_ns == {"50": 90.0}
    assert both.precision == 0.01


def test_device_without_throughput_has_no_latency() -> None:
    outcome = LatencyMethod(LatencySettings()).measure(Bench(SimulatedGenerator(SimulatedDut(capacity_fps=100))).context)
    assert outcome.status is MeasurementStatus.INCONCLUSIVE
    assert outcome.metrics == {}


def test_a_load_beyond_the_generator_is_reported() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=MAX_FPS), ceiling_fps=150_000), throughput_fps=200_000)
    outcome = LatencyMethod(LatencySettings(load_ratios=(1.0, 0.5))).measure(bench.context)
    assert outcome.status is MeasurementStatus.INCONCLUSIVE
    assert outcome.headline == ""
    assert "latency_50pct_mean_ns" in outcome.metrics


def test_strict_settings_leave_two_deviations() -> None:
    assert len(strict_method("latency").deviations()) == 2
    assert len(LatencyMethod(LatencySettings()).deviations()) > 4
    assert len(LatencyMethod(LatencySettings(load_ratios=(0.5,))).deviations()) == len(LatencyMethod(LatencySettings()).deviations()) + 1
