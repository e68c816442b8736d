"""Disturbed trials: repeated within the budget, otherwise marked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ringroad_lab.method.interface import DisturbedRepeats
from ringroad_lab.method.latency import LatencyMethod, LatencySettings
from ringroad_lab.method.throughput import ThroughputMethod, ThroughputSettings
from ringroad_lab.method.trial_series import TrialSeries
from ringroad_lab.trial import Disturbance, DisturbanceLimits, TrialResult
from simulated_bench import Bench, Scripted
from simulated_generator import SimulatedDut

DUT = SimulatedDut(capacity_fps=500_000.0)
BELOW, ABOVE = 400_000.0, 600_000.0


def disturbance(others_s: float) -> Disturbance:
    return Disturbance(limit=0.05, elapsed_s=1.0, processor=0, others_s=others_s)


def bench(is_disturbed: Callable[[int], bool], *, extra_trials: int = 6, extra_s: float = 100.0, lost: int = 0) -> Bench:
    """Return a bench on which trials of some numbers are disturbed, and lose `lost` frames each."""

    def change(number: int, result: TrialResult) -> TrialResult:
        if not is_disturbed(number):
            return result.model_copy(update={"disturbance": disturbance(0.01)})
        ways = tuple(way.model_copy(update={"received_frames": max(0, way.received_frames - lost)}) for way in result.directions)
        return result.model_copy(update={"disturbance": disturbance(0.4), "directions": ways})

    made = Bench(Scripted(DUT, change))
    limits = DisturbanceLimits(extra_trials=extra_trials, extra_s=extra_s)
    made.context = made.context.__class__(**{**made.context.__dict__, "repeats": DisturbedRepeats(limits)})
    return made


def flags(made: Bench) -> list[tuple[bool, bool]]:
    return [(trial.is_disturbed, trial.is_repeated) for trial in made.trials]


def test_a_disturbed_loss_is_repeated_immediately_and_the_repetition_counts() -> None:
    made = bench(lambda number: number == 0, lost=100)
    assert TrialSeries(made.context, 0).run(BELOW, 1.0, "search").passes
    assert flags(made) == [(True, True), (False, False)]


def test_a_disturbed_trial_that_passes_counts() -> None:
    made = bench(lambda _: True)
    assert TrialSeries(made.context, 0).run(BELOW, 1.0, "search").passes
    assert flags(made) == [(False, False)]


def test_a_disturbed_trial_that_passes_is_repeated_if_more_than_loss_counts() -> None:
    made = bench(lambda number: number == 0)
    TrialSeries(made.context, 0).run(BELOW, 1.0, "latency", loss_alone_counts=False)
    assert flags(made) == [(True, True), (False, False)]


@pytest.mark.parametrize(("extra_trials", "extra_s"), [(2, 100.0), (100, 2.5)], ids=["trials", "seconds"])
def test_trials_beyond_the_budget_are_only_marked(extra_trials: int, extra_s: float) -> None:
    made = bench(lambda _: True, extra_trials=extra_trials, extra_s=extra_s)
    series = TrialSeries(made.context, 0)
    assert not series.run(ABOVE, 1.0, "search").passes
    assert not series.run(ABOVE, 1.0, "search").passes
    assert flags(made) == [(True, True), (True, True), (True, False), (True, False)]


def test_one_trial_does_not_use_up_the_whole_budget() -> None:
    made = bench(lambda _: True, extra_trials=100)
    TrialSeries(made.context, 0).run(ABOVE, 1.0, "search")
    assert flags(made) == [(True, True)] * 3 + [(True, False)]


def test_the_least_disturbed_trial_counts_if_all_are_disturbed() -> None:
    taken = [0.4, 0.1, 0.3, 0.2]
    made = Bench(Scripted(DUT, lambda number, result: result.model_copy(update={"disturbance": disturbance(taken[number])})))
    TrialSeries(made.context, 0).run(ABOVE, 1.0, "search")
    ratios = [(trial.disturbance.ratio if trial.disturbance else 0.0, trial.is_repeated) for trial in made.trials]
    assert ratios == [(0.4, True), (0.3, True), (0.2, True), (0.1, False)]


def test_a_trial_that_may_not_be_repeated_is_only_marked() -> None:
    made = bench(lambda _: True)
    TrialSeries(made.context, 0).run(ABOVE, 1.0, "recovery", may_repeat=False)
    assert flags(made) == [(True, False)]


def test_the_verification_decides_about_a_disturbed_loss() -> None:
    made = bench(lambda number: number == 0, extra_trials=0, lost=100)
    assert TrialSeries(made.context, 0).run(BELOW, 1.0, "search", loss_repeats=1).passes
    assert flags(made) == [(True, True), (False, False)]


def test_a_search_finds_the_throughput_through_disturbances_within_the_budget() -> None:
    settings = ThroughputSettings(loss_repeats=0)
    made = bench(lambda number: number % 3 == 0, extra_trials=100, extra_s=1000.0, lost=10_000)
    outcome = ThroughputMethod(settings).measure(made.context)
    assert outcome.metrics["throughput_fps"].value == pytest.approx(500_000.0, rel=0.011)
    assert any(trial.is_repeated for trial in made.trials)
    assert not any(trial.is_disturbed and not trial.is_repeated for trial in made.trials)
    poor = bench(lambda number: number % 3 == 0, extra_trials=0, lost=10_000)
    assert ThroughputMethod(settings).measure(poor.context).metrics["throughput_fps"].value < 490_000.0
    assert any(trial.is_disturbed and not trial.is_repeated for trial in poor.trials)


def test_a_warm_up_is_never_repeated() -> None:
    made = bench(lambda _: True)
    LatencyMethod(LatencySettings(throughput=ThroughputSettings(warm_up_s=1.0))).measure(made.context)
    assert sum(trial.request.purpose == "warm-up" for trial in made.trials) == 1
    assert all(not trial.is_disturbed for trial in made.trials if trial.request.purpose == "warm-up")
