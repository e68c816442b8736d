"""Verdicts and their reliability: false alarms and detected changes, by simulation."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisy_measurements import NOISES, measured
from ringroad_lab.record import Better
from ringroad_lab.statistics.interleave import turns
from ringroad_lab.statistics.noise_floor import noise_floor_interval
from ringroad_lab.statistics.two_samples import DEFAULT_PAIRS, compare
from ringroad_lab.statistics.verdict import MetricComparison, Verdict

COMPARISONS = 200


@cache
def verdicts(kind: str, change: float, pairs: int = DEFAULT_PAIRS) -> list[MetricComparison]:
    """Return the comparisons at the default effort."""
    return [compare(*measured(kind, change, pairs, seed), better=Better.HIGHER, is_paired=True) for seed in range(COMPARISONS)]


def share(comparisons: list[MetricComparison], *wanted: Verdict) -> float:
    """Return the share of comparisons with these verdicts."""
    return sum(comparison.verdict in wanted for comparison in comparisons) / len(comparisons)


@pytest.mark.parametrize("kind", NOISES)
def test_false_alarms_are_five_percent_or_less(kind: str) -> None:
    assert share(verdicts(kind, 0.0), Verdict.REGRESSION, Verdict.IMPROVEMENT) <= 0.05


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize(("change", "verdict"), [(-0.05, Verdict.REGRESSION), (0.05, Verdict.IMPROVEMENT)])
def test_change_of_five_percent_is_found_nine_times_out_of_ten(kind: str, change: float, verdict: Verdict) -> None:
    comparisons = verdicts(kind, change)
    assert share(comparisons, verdict) >= 0.9
    assert share(comparisons, Verdict.NO_DIFFERENCE) == 0
    # Never in the wrong direction.
    assert share(comparisons, Verdict.REGRESSION, Verdict.IMPROVEMENT) == share(comparisons, verdict)


def test_false_alarms_are_rare_with_the_fewest_pairs_too() -> None:
    assert share(verdicts("normal", 0.0, pairs=6), Verdict.REGRESSION, Verdict.IMPROVEMENT) <= 0.05


def test_steady_measurements_show_that_there_is_no_difference() -> None:
    comparisons = [compare(*measured("steady", 0.0, 24, seed), better=Better.HIGHER, is_paired=True) for seed in range(COMPARISONS)]
    assert share(comparisons, Verdict.NO_DIFFERENCE) >= 0.9


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("scale", [1.0, 3.0, 12.0])
def test_no_difference_is_never_reported_for_a_difference_above_the_limit(kind: str, scale: float) -> None:
    """The noise is up to 30 % of a measurement; the noise floor is from the same noise."""
    for seed in range(100):
        baseline, candidate = measured(kind, -0.05, DEFAULT_PAIRS, seed, scale=scale)
        floor = noise_floor_interval(*measured(kind, 0.0, DEFAULT_PAIRS, 1000 + seed, scale=scale))
        comparison = compare(baseline, candidate, better=Better.HIGHER, is_paired=True, noise_floor=floor)
        assert comparison.verdict is not Verdict.NO_DIFFERENCE, comparison


@pytest.mark.parametrize(("kind", "change"), [("normal", 0.0), ("normal", -0.05), ("heavy tails", 0.0), ("dips", -0.05)])
def test_the_suggested_samples_usually_decide(kind: str, change: float) -> None:
    undecided = [comparison for comparison in verdicts(kind, change, 6) if comparison.verdict is Verdict.INCONCLUSIVE]
    suggested = [comparison.more_samples for comparison in undecided if comparison.more_samples is not None]
    assert len(undecided) > 20
    assert len(suggested) > len(undecided) / 2
    enough = 6 + round(float(np.median(suggested)))
    assert share(verdicts(kind, change, enough), Verdict.INCONCLUSIVE) < share(verdicts(kind, change, 6), Verdict.INCONCLUSIVE) - 0.2


MIRRORED = {Verdict.REGRESSION: Verdict.IMPROVEMENT, Verdict.IMPROVEMENT: Verdict.REGRESSION}
PAIRS = st.integers(6, 14).flatmap(lambda count: st.lists(st.tuples(*[st.floats(0.8, 1.25)] * 2), min_size=count, max_size=count))


@settings(max_examples=60)
@given(
    pairs=PAIRS,
    factor=st.sampled_from([0.5, 0.9, 0.98, 1.0, 1.02, 1.03, 1.2]),
    floor=st.none() | st.tuples(st.floats(0.7, 1.0), st.floats(1.0, 1.4)),
    better=st.sampled_from(Better),
    is_paired=st.booleans(),
)
def test_with_the_sides_exchanged_the_verdict_is_the_opposite(
    pairs: list[tuple[float, float]], factor: float, floor: tuple[float, float] | None, better: Better, *, is_paired: bool
) -> None:
    one, other = [first for first, _ in pairs], [factor * second for _, second in pairs]
    forth = compare(one, other, better=better, is_paired=is_paired, noise_floor=floor)
    back = compare(other, one, better=better, is_paired=is_paired, noise_floor=floor)
    assert back.verdict is MIRRORED.get(forth.verdict, forth.verdict)
    assert (back.reason, back.smallest_detectable, back.more_samples) == (forth.reason, forth.smallest_detectable, forth.more_samples)
    assert back.ratio == pytest.approx(1 / (forth.ratio or 0))
    assert forth.interval is not None
    assert back.interval == pytest.approx((1 / forth.interval[1], 1 / forth.interval[0]))


def test_more_samples_do_not_overcome_a_floor_above_the_limit() -> None:
    comparison = compare(around(100), around(101), better=Better.HIGHER, noise_floor=(0.6, 1.1))
    assert comparison.verdict is Verdict.INCONCLUSIVE
    assert "no number of samples" in comparison.reason
    assert comparison.more_samples is None
    assert compare(around(100), around(101), better=Better.HIGHER, noise_floor=(0.6, 1.1), limit=0.9).verdict is Verdict.NO_DIFFERENCE


def test_drift_is_a_false_alarm_without_interleaving() -> None:
    one_after_the_other = [
        compare(*measured("drift", 0.0, DEFAULT_PAIRS, seed, is_interleaved=False), better=Better.HIGHER) for seed in range(50)
    ]
    assert share(one_after_the_other, Verdict.REGRESSION) > 0.9


def test_samples_of_separate_runs_raise_no_more_false_alarms() -> None:
    comparisons = [compare(*measured("normal", 0.0, DEFAULT_PAIRS, seed), better=Better.HIGHER) for seed in range(COMPARISONS)]
    assert share(comparisons, Verdict.REGRESSION, Verdict.IMPROVEMENT) <= 0.05


@pytest.mark.parametrize("kind", ["normal", "heavy tails"])
def test_smallest_detectable_difference_is_found_about_nine_times_out_of_ten(kind: str) -> None:
    detected = [comparison.smallest_detectable for comparison in verdicts(kind, 0.0)]
    typical = float(np.median([detectable for detectable in detected if detectable is not None]))
    assert len(detected) == COMPARISONS
    assert share(verdicts(kind, typical), Verdict.IMPROVEMENT) >= 0.85
    assert share(verdicts(kind, typical / 3), Verdict.IMPROVEMENT) < 0.4


def test_interval_contains_the_true_ratio_as_often_as_its_confidence() -> None:
    held = [c.interval[0] <= 0.9 <= c.interval[1] for c in verdicts("heavy tails", -0.1) if c.interval is not None]
    assert sum(held) / COMPARISONS >= 0.93


def around(value: float, spread: float = 0.001) -> list[float]:
    """Return twelve samples about a value."""
    return [value * (1 + spread * offset) for offset in (-2, -1, 0, 1, 2, 0, -1, 1, 0, 0, 1, -1)]


@pytest.mark.parametrize(
    ("better", "candidate", "verdict"),
    [
        (Better.HIGHER, 110, Verdict.IMPROVEMENT),
        (Better.HIGHER, 90, Verdict.REGRESSION),
        (Better.LOWER, 110, Verdict.REGRESSION),
        (Better.LOWER, 90, Verdict.IMPROVEMENT),
        (Better.HIGHER, 100.5, Verdict.NO_DIFFERENCE),
        (Better.NEITHER, 110, Verdict.INCONCLUSIVE),
    ],
)
def test_verdict_follows_the_better_direction(better: Better, candidate: float, verdict: Verdict) -> None:
    comparison = compare(around(100), around(candidate), better=better)
    assert comparison.verdict is verdict
    assert comparison.ratio == pytest.approx(candidate / 100)
    assert bool(comparison.reason) == (verdict is Verdict.INCONCLUSIVE)


def test_change_within_the_noise_floor_is_no_difference() -> None:
    samples = (around(100), around(104))
    assert compare(*samples, better=Better.HIGHER).verdict is Verdict.IMPROVEMENT
    assert compare(*samples, better=Better.HIGHER, noise_floor=(0.95, 1.05), limit=0.06).verdict is Verdict.NO_DIFFERENCE
    assert compare(*samples, better=Better.HIGHER, noise_floor=(0.95, 1.05)).verdict is Verdict.INCONCLUSIVE
    assert compare(*samples, better=Better.HIGHER, noise_floor=(0.99, 1.03)).verdict is Verdict.IMPROVEMENT
    assert compare(*samples, better=Better.HIGHER, noise_floor=(0.96, 1.0405)).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("baseline", "candidate", "verdict", "reason"),
    [
        ([], [1.0], Verdict.INVALID, "baseline"),
        ([1.0], [], Verdict.INVALID, "candidate"),
        ([], [], Verdict.INVALID, "baseline and the candidate"),
        ([1.0] * 12, [-1.0] * 12, Verdict.INVALID, "negative"),
        ([5e-324] * 12, [1e30] * 12, Verdict.INVALID, "not a measurable number"),
        ([1.0] * 5, [2.0] * 12, Verdict.INCONCLUSIVE, "5 samples"),
        ([1.0], [2.0], Verdict.INCONCLUSIVE, "1 sample; an interval"),
        ([0.0] * 12, [0.0] * 12, Verdict.NO_DIFFERENCE, "0"),
        ([0.0] * 12, [1.0] * 12, Verdict.INCONCLUSIVE, "no ratio"),
    ],
)
def test_samples_without_a_ratio(baseline: list[float], candidate: list[float], verdict: Verdict, reason: str) -> None:
    comparison = compare(baseline, candidate, better=Better.HIGHER)
    assert comparison.verdict is verdict
    assert reason in comparison.reason
    assert comparison.interval is None
    assert comparison.smallest_detectable is None


def test_pairs_need_equal_numbers_of_samples() -> None:
    with pytest.raises(ValueError, match="not pairs"):
        compare(around(1), around(1)[1:], better=Better.HIGHER, is_paired=True)


def test_noise_floor_is_the_range_of_few_pairs_and_an_interval_of_many() -> None:
    assert noise_floor_interval([100.0, 100.0], [104.0, 102.0]) == pytest.approx((1 / 1.04, 1.04))
    assert noise_floor_interval([104.0, 102.0], [100.0, 100.0]) == pytest.approx((1 / 1.04, 1.04))
    first, second = measured("normal", 0.0, 30, seed=1)
    low, high = noise_floor_interval(first, second)
    ratios = sorted(b / a for a, b in zip(first, second, strict=True))
    assert ratios[0] < low < 1 < high < ratios[-1]


@pytest.mark.parametrize(("first", "second"), [([], []), ([1.0], [1.0, 2.0]), ([1.0], [0.0])])
def test_noise_floor_needs_pairs_above_zero(first: list[float], second: list[float]) -> None:
    with pytest.raises(ValueError, match=r"pairs|above 0"):
        noise_floor_interval(first, second)


def test_turns_alternate_forward_and_backward() -> None:
    assert turns(("a", "b", "c"), 3) == (("a", "b", "c"), ("c", "b", "a"), ("a", "b", "c"))
    assert turns(("a",), 2) == (("a",), ("a",))
    # Over an even number of repetitions each device has the same mean place, so that a steady drift affects all equally.
    places: dict[str, int] = {}
    for place, label in enumerate(label for turn in turns(("a", "b", "c"), 4) for label in turn):
        places[label] = places.get(label, 0) + place
    assert len(set(places.values())) == 1
