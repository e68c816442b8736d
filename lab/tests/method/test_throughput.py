"""RFC 2544 throughput of simulated devices."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringroad_lab.method.interface import METHODS
from ringroad_lab.method.throughput import ThroughputMethod, ThroughputSettings
from ringroad_lab.method.trial_series import NO_WAITS
from ringroad_lab.record import MeasurementStatus, Outcome
from ringroad_lab.trial import TrialResult, TrialVerdict
from simulated_bench import MAX_FPS, Bench, Scripted
from simulated_generator import SimulatedDut, SimulatedGenerator
from strict_settings import strict_method


def measure(bench: Bench, **settings: float) -> Outcome:
    """Measure the throughput on a bench."""
    return ThroughputMethod(ThroughputSettings.model_validate(settings)).measure(bench.context)


def throughput(outcome: Outcome) -> float:
    """Return the result, which must exist."""
    assert outcome.headline == "throughput_fps"
    return outcome.metrics[outcome.headline].value


@given(
    capacity_fps=st.floats(2_000, 2 * MAX_FPS),
    start_ratio=st.floats(0.001, 1.0),
    resolution=st.floats(0.0005, 0.3),
    search_s=st.floats(0.2, 10.0),
    seed=st.integers(0, 1000),
)
def test_capacity_is_found_within_the_resolution(
    capacity_fps: float, start_ratio: float, resolution: float, search_s: float, seed: int
) -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=capacity_fps), seed=seed))
    outcome = measure(bench, start_ratio=start_ratio, resolution=resolution, search_s=search_s)
    assert outcome.status is MeasurementStatus.OK
    # A load is above the capacity when it loses a whole frame in a trial.
    greatest = min(MAX_FPS, capacity_fps + 1 / 5.0)
    assert min(MAX_FPS, capacity_fps) * (1 - resolution) - 1 <= throughput(outcome) <= greatest
    assert all(trial.request.load.rate_fps <= MAX_FPS for trial in bench.trials)
    assert len(bench.trials) < 100


@given(capacity_fps=st.floats(5_000, MAX_FPS), softness=st.floats(0.0, 0.3), loss_ratio=st.floats(0.0005, 0.2))
def test_acceptable_loss_of_a_soft_device_is_met(capacity_fps: float, softness: float, loss_ratio: float) -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=capacity_fps, softness=softness)))
    outcome = measure(bench, acceptable_loss_ratio=loss_ratio, resolution=0.005)
    validated = [
        trial for trial in bench.trials if trial.request.purpose == "validation" and trial.request.load.rate_fps == throughput(outcome)
    ]
    assert validated[-1].loss_ratio <= loss_ratio
    refused = outcome.metrics.get("refused_fps")
    if refused is not None:
        assert refused.value - throughput(outcome) <= max(1.0, 0.005 * refused.value)


def test_last_trial_has_the_configured_duration_and_passes() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=300_000)))
    measure(bench, validation_s=60.0)
    assert bench.trials[-1].request.duration_s == 60.0
    assert bench.trials[-1].lost_frames == 0


def test_loss_that_only_long_trials_show_lowers_the_result() -> None:
    # In 1 s the buffer hides an overload of 20000 frames/s, in 10 s only a tenth of that.
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=300_000, buffer_frames=20_000)))
    outcome = measure(bench, search_s=1.0, validation_s=10.0, resolution=0.002)
    assert throughput(outcome) == pytest.approx(302_000, rel=0.003)


def test_capacity_below_the_lowest_rate_is_inconclusive_and_not_zero() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=400)))
    outcome = measure(bench)
    assert outcome.status is MeasurementStatus.INCONCLUSIVE
    assert outcome.metrics == {}
    assert "minimum_ratio" in outcome.reasons[0]


def test_passing_at_the_generators_ceiling_is_a_lower_bound() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=2 * MAX_FPS)), is_max_generator_bound=True)
    outcome = measure(bench)
    assert outcome.status is MeasurementStatus.LOWER_BOUND
    assert throughput(outcome) == MAX_FPS
    assert "ceiling" in outcome.reasons[0]


def test_passing_at_line_rate_is_not_a_lower_bound() -> None:
    outcome = measure(Bench(SimulatedGenerator(SimulatedDut(capacity_fps=2 * MAX_FPS))))
    assert outcome.status is MeasurementStatus.OK
    assert throughput(outcome) == MAX_FPS


@pytest.mark.parametrize("is_stubborn", [False, True])
@pytest.mark.parametrize("capacity_fps", [600_000, 300_000])
def test_loads_that_the_generator_cannot_carry_are_not_loss(is_stubborn: bool, capacity_fps: float) -> None:
    generator = SimulatedGenerator(SimulatedDut(capacity_fps=capacity_fps), ceiling_fps=500_000, is_stubborn=is_stubborn)
    bench = Bench(generator)
    outcome = measure(bench)
    if capacity_fps > 500_000:
        assert outcome.status is MeasurementStatus.LOWER_BOUND
        assert throughput(outcome) == pytest.approx(500_000, rel=0.02)
        assert "generator cannot carry" in outcome.reasons[0]
    else:
        assert outcome.status is MeasurementStatus.OK
        assert throughput(outcome) == pytest.approx(300_000, rel=0.01)
    # The first search trial was repeated before its load was abandoned.
    assert bench.rates("search")[:3] == [MAX_FPS] * 3


def test_generator_that_carries_nothing_is_invalid() -> None:
    outcome = measure(Bench(SimulatedGenerator(SimulatedDut(capacity_fps=MAX_FPS), ceiling_fps=10)))
    assert outcome.status is MeasurementStatus.INVALID
    assert "generator" in outcome.reasons[0]
    assert outcome.metrics == {}


def test_device_that_forwards_nothing_is_invalid_at_once() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=MAX_FPS, dies_at_trial=0)))
    outcome = measure(bench)
    assert outcome.status is MeasurementStatus.INVALID
    assert "forwards nothing" in outcome.reasons[0]
    assert not bench.rates("validation")
    assert len(set(bench.rates("search"))) == 1


def test_device_that_is_silent_for_a_while_after_an_overload_is_not_dead() -> None:
    # Warm-up, overload, its verification; then the trials in which the device recovers.
    def silent(number: int, result: TrialResult) -> TrialResult:
        if not 1 <= number <= 5:
            return result
        return result.model_copy(update={"directions": tuple(d.model_copy(update={"received_frames": 0}) for d in result.directions)})

    bench = Bench(Scripted(SimulatedDut(capacity_fps=300_000), silent))
    outcome = measure(bench)
    assert outcome.status is MeasurementStatus.OK
    assert outcome.metrics["throughput_fps"].value == pytest.approx(300_000, rel=0.02)
    assert len(bench.rates("alive")) == 4


@given(dies_at_trial=st.integers(0, 12))
def test_device_that_dies_never_has_a_result(dies_at_trial: int) -> None:
    # 13 trials and more are needed at this resolution.
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=300_000, dies_at_trial=dies_at_trial)))
    outcome = measure(bench, resolution=0.001, loss_repeats=0)
    assert outcome.status is MeasurementStatus.INVALID
    assert outcome.metrics == {}


def test_duplicates_do_not_hide_loss_and_are_reported() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=300_000, duplicate_ratio=0.5)))
    outcome = measure(bench)
    assert throughput(outcome) == pytest.approx(300_000, rel=0.01)
    assert outcome.metrics["duplicate_frames"].value > 0


def lose_some(result: TrialResult) -> TrialResult:
    """Return the trial with a tenth of its frames lost."""
    return result.model_copy(
        update={"directions": tuple(d.model_copy(update={"received_frames": d.received_frames * 9 // 10}) for d in result.directions)}
    )


@pytest.mark.parametrize(("loss_repeats", "expected_fps"), [(0, 250_000), (1, 900_000)])
def test_one_bad_trial_decides_only_without_loss_verification(loss_repeats: int, expected_fps: float) -> None:
    # Trials are: warm-up, maximum (fails; and its repetition), then half of the maximum, which is disturbed.
    bad = 2 + loss_repeats
    generator = Scripted(SimulatedDut(capacity_fps=900_000), lambda n, result: lose_some(result) if n == bad else result)
    found = throughput(measure(Bench(generator), loss_repeats=loss_repeats))
    assert found == pytest.approx(expected_fps, rel=0.01) if loss_repeats else found < 500_000


@given(seed=st.integers(0, 10_000))
def test_occasional_bad_trials_do_not_spoil_a_verified_search(seed: int) -> None:
    dut = SimulatedDut(capacity_fps=700_000, bad_trial_ratio=0.03)
    outcome = measure(Bench(SimulatedGenerator(dut, seed=seed)), loss_repeats=4)
    assert throughput(outcome) == pytest.approx(700_000, rel=0.01)


def test_loss_at_the_start_of_the_generator_falls_into_the_warm_up() -> None:
    generator = Scripted(SimulatedDut(capacity_fps=2 * MAX_FPS), lambda n, result: lose_some(result) if n == 0 else result)
    bench = Bench(generator)
    assert throughput(measure(bench, loss_repeats=0)) == MAX_FPS
    assert bench.trials[0].request.purpose == "warm-up"


def test_a_livelocked_device_is_not_mistaken_for_a_dead_one() -> None:
    def drop_all_above(_: int, result: TrialResult) -> TrialResult:
        if result.request.load.rate_fps <= 600_000:
            return result
        return result.model_copy(update={"directions": tuple(d.model_copy(update={"received_frames": 0}) for d in result.directions)})

    outcome = measure(Bench(Scripted(SimulatedDut(capacity_fps=2 * MAX_FPS), drop_all_above)))
    assert throughput(outcome) == pytest.approx(600_000, rel=0.01)


def test_each_trial_is_reported() -> None:
    generator = SimulatedGenerator(SimulatedDut(capacity_fps=300_000))
    bench = Bench(generator)
    measure(bench)
    assert len(bench.trials) == generator.trials


def test_expected_time_is_near_the_real_one() -> None:
    generator = SimulatedGenerator(SimulatedDut(capacity_fps=300_000), overhead_s=1.5)
    method = ThroughputMethod(ThroughputSettings())
    method.measure(Bench(generator).context)
    assert generator.now_s / 2 < method.expected_s(1.5) < generator.now_s * 2


def test_strict_settings_follow_the_rfc_and_quick_settings_report_deviations() -> None:
    assert strict_method("throughput").deviations() == (NO_WAITS,)
    deviations = " ".join(ThroughputMethod(ThroughputSettings(acceptable_loss_ratio=0.001)).deviations())
    for what in ("60 s", "0.001", "TST 009"):
        assert what in deviations


def test_every_method_makes_strict_settings() -> None:
    for name, method in METHODS.items():
        made = strict_method(name)
        assert made.expected_s(1.0) > 0
        assert method(method.settings_type()).expected_s(1.0) <= made.expected_s(1.0)
        # Settings in the form used by scenarios.
        assert method.settings_type.model_validate_json(made.settings.model_dump_json()) == made.settings


def test_an_invalid_verification_does_not_revoke_a_loss() -> None:
    def spoil_verification(_: int, result: TrialResult) -> TrialResult:
        return result.model_copy(update={"verdict": TrialVerdict.INVALID}) if result.request.purpose == "verification" else result

    outcome = measure(Bench(Scripted(SimulatedDut(capacity_fps=300_000), spoil_verification)))
    # The device's own limit, not the generator's.
    assert outcome.status is MeasurementStatus.OK
    assert throughput(outcome) == pytest.approx(300_000, rel=0.01)


def test_each_direction_and_the_sum_have_their_own_results() -> None:
    def lose_some_one_way(number: int, result: TrialResult) -> TrialResult:
        first, second = result.directions
        fewer = second.model_copy(update={"received_frames": round(0.999 * first.received_frames)})
        return result.model_copy(update={"directions": (first, fewer)})

    bench = Bench(Scripted(SimulatedDut(capacity_fps=200_000), lose_some_one_way))
    outcome = measure(bench, acceptable_loss_ratio=0.01)

    names = [f"{way.sender}_to_{way.receiver}" for way in bench.trials[-1].directions]
    one, other = (outcome.metrics[f"throughput_{name}_fps"].value for name in names)
    assert one == pytest.approx(throughput(outcome), rel=0.02)
    assert other == pytest.approx(0.999 * one)
    assert outcome.metrics["throughput_sum_fps"].value == pytest.approx(one + other)


def test_one_direction_alone_has_no_sum() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=200_000)))
    one_way = dataclasses.replace(bench.context, bidirectional=False)
    outcome = ThroughputMethod(ThroughputSettings()).measure(one_way)
    assert not any("_to_" in name or "sum" in name for name in outcome.metrics)
