"""MLRsearch of simulated devices."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringroad_lab.method.mlrsearch import LossGoal, MlrSearchMethod, MlrSearchSettings
from ringroad_lab.method.trial_series import NO_WAITS
from ringroad_lab.record import MeasurementStatus
from ringroad_lab.trial import TrialResult, TrialVerdict
from simulated_bench import MAX_FPS, Bench, Scripted
from simulated_generator import SimulatedDut, SimulatedGenerator
from strict_settings import strict_method


@settings(max_examples=30)
@given(capacity_fps=st.floats(5_000, 0.99 * MAX_FPS), softness=st.sampled_from([0.0, 0.05]))
def test_both_goals_are_bracketed_within_their_width(capacity_fps: float, softness: float) -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=capacity_fps, softness=softness)))
    outcome = MlrSearchMethod(MlrSearchSettings()).measure(bench.context)
    assert outcome.status is MeasurementStatus.OK
    assert outcome.headline == "ndr_conditional_throughput_fps"
    metrics = {name: metric.value for name, metric in outcome.metrics.items()}
    for goal in ("ndr", "pdr"):
        lower, upper = metrics[f"{goal}_lower_bound_fps"], metrics[f"{goal}_upper_bound_fps"]
        assert lower < upper
        assert (upper - lower) / upper <= 0.005
        assert 0 < metrics[f"{goal}_conditional_throughput_fps"] <= lower
    assert metrics["ndr_lower_bound_fps"] <= metrics["pdr_lower_bound_fps"]
    if not softness:
        assert metrics["ndr_lower_bound_fps"] <= capacity_fps + 1 <= metrics["ndr_upper_bound_fps"] + 2
        assert metrics["pdr_lower_bound_fps"] * 0.995 <= capacity_fps
    assert all(trial.request.load.rate_fps <= MAX_FPS for trial in bench.trials)


def test_occasional_bad_trials_do_not_spoil_the_search() -> None:
    generator = SimulatedGenerator(SimulatedDut(capacity_fps=300_000, bad_trial_ratio=0.1), seed=5)
    outcome = MlrSearchMethod(MlrSearchSettings()).measure(Bench(generator).context)
    assert outcome.metrics["ndr_lower_bound_fps"].value == pytest.approx(300_000, rel=0.006)


def test_passing_at_the_ceiling_is_a_lower_bound() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=2 * MAX_FPS)), is_max_generator_bound=True)
    outcome = MlrSearchMethod(MlrSearchSettings()).measure(bench.context)
    assert outcome.status is MeasurementStatus.LOWER_BOUND
    assert outcome.metrics["ndr_lower_bound_fps"].value == MAX_FPS


@pytest.mark.parametrize("is_stubborn", [False, True])
def test_loads_that_the_generator_cannot_carry_are_not_loss(is_stubborn: bool) -> None:
    generator = SimulatedGenerator(SimulatedDut(capacity_fps=2 * MAX_FPS), ceiling_fps=600_000, is_stubborn=is_stubborn)
    outcome = MlrSearchMethod(MlrSearchSettings()).measure(Bench(generator).context)
    assert outcome.status is MeasurementStatus.LOWER_BOUND
    assert 0.9 * 600_000 <= outcome.metrics["ndr_lower_bound_fps"].value <= 600_000


def test_device_below_the_least_load_is_inconclusive() -> None:
    outcome = MlrSearchMethod(MlrSearchSettings()).measure(Bench(SimulatedGenerator(SimulatedDut(capacity_fps=400))).context)
    assert outcome.status is MeasurementStatus.INCONCLUSIVE
    assert outcome.headline == ""


@pytest.mark.parametrize(
    ("dut", "ceiling_fps"), [(SimulatedDut(capacity_fps=300_000, dies_at_trial=4), None), (SimulatedDut(capacity_fps=1e6), 10)]
)
def test_dead_device_and_weak_generator_are_invalid(dut: SimulatedDut, ceiling_fps: float | None) -> None:
    outcome = MlrSearchMethod(MlrSearchSettings()).measure(Bench(SimulatedGenerator(dut, ceiling_fps=ceiling_fps)).context)
    assert outcome.status is MeasurementStatus.INVALID
    assert outcome.metrics == {}


def test_one_goal_of_long_trials() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=300_000)))
    method = strict_method("mlrsearch")
    outcome = method.measure(bench.context)
    assert outcome.metrics["ndr_lower_bound_fps"].value == pytest.approx(300_000, rel=0.006)
    assert max(trial.request.duration_s for trial in bench.trials) == 60.0
    assert method.deviations() == (NO_WAITS,)
    assert len(MlrSearchMethod(MlrSearchSettings()).deviations()) == 3


def test_goals_have_their_own_names() -> None:
    with pytest.raises(ValueError, match="same name"):
        MlrSearchSettings(goals=(LossGoal(name="a", loss_ratio=0.0), LossGoal(name="a", loss_ratio=0.1)))


@pytest.mark.parametrize("durations", [{"initial_trial_s": 2.0}, {"final_trial_s": 60.0}])
def test_contradictory_durations_are_rejected_before_the_run(durations: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="goal ndr: initial_trial_s"):
        LossGoal(name="ndr", loss_ratio=0.0, **durations)


def test_the_load_that_the_generator_could_not_carry_is_named() -> None:
    # It first carries the greatest load, and then less than the device.
    def tire(number: int, result: TrialResult) -> TrialResult:
        is_tired = number > 1 and result.request.load.rate_fps > 700_000
        return result.model_copy(update={"verdict": TrialVerdict.INVALID}) if is_tired else result

    bench = Bench(Scripted(SimulatedDut(capacity_fps=800_000), tire))
    outcome = MlrSearchMethod(MlrSearchSettings()).measure(bench.context)
    assert outcome.status is MeasurementStatus.LOWER_BOUND
    failed = [trial.request.load.rate_fps for trial in bench.trials if not trial.is_valid]
    assert all(f"could not carry {failed[-1]:.0f} frames/s" in reason for reason in outcome.reasons)


def test_the_search_stays_above_a_high_minimum_load() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=800_000)))
    outcome = MlrSearchMethod(MlrSearchSettings(minimum_ratio=0.7)).measure(bench.context)
    assert outcome.status is MeasurementStatus.OK
    assert min(bench.rates("search")) >= 700_000


def test_a_trial_too_short_for_a_frame_is_invalid_with_a_reason() -> None:
    outcome = MlrSearchMethod(MlrSearchSettings()).measure(Bench(SimulatedGenerator(SimulatedDut(capacity_fps=9)), max_fps=1.0).context)
    assert outcome.status is MeasurementStatus.INVALID
    assert "from 1 to 1 frames/s" in outcome.reasons[0]
