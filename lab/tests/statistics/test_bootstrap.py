"""Intervals of ratios."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ringroad_lab.statistics.bootstrap import estimate_paired_ratio, estimate_ratio, needed_samples

SAMPLES = st.lists(st.floats(0.5, 2.0), min_size=6, max_size=20)


@pytest.mark.parametrize(("confidence", "needed"), [(0.9, 5), (0.95, 6), (0.99, 8)])
def test_all_samples_on_one_side_are_less_likely_than_the_permitted_error(confidence: float, needed: int) -> None:
    assert needed_samples(confidence) == needed
    assert 2 * 0.5**needed <= 1 - confidence < 2 * 0.5 ** (needed - 1)


@settings(max_examples=25)
@given(samples=SAMPLES, factor=st.floats(0.1, 10.0))
def test_same_factor_in_each_pair_is_found_exactly(samples: list[float], factor: float) -> None:
    estimate = estimate_paired_ratio(samples, [factor * sample for sample in samples], 0.95)
    assert estimate.ratio == pytest.approx(factor)
    assert estimate.interval == pytest.approx((factor, factor))
    assert estimate.deviation == pytest.approx(0, abs=1e-9)


@settings(max_examples=25)
@given(baseline=SAMPLES, candidate=SAMPLES)
@example(baseline=[1.0, 1.0, 1.0, 2.0, 2.0, 2.5], candidate=[1.0, 1.0, 1.0, 2.0, 2.0, 2.5])
@example(baseline=[2.0, 2.0, 1.0, 1.0, 1.0, 1.0], candidate=[1.0, 1.0, 0.5, 1.0, 1.0, 1.0, 1.0])
def test_ratio_lies_in_its_interval(baseline: list[float], candidate: list[float]) -> None:
    estimate = estimate_ratio(baseline, candidate, 0.95)
    assert estimate.interval[0] <= estimate.ratio * (1 + 1e-12)
    assert estimate.ratio <= estimate.interval[1] * (1 + 1e-12)


def test_the_interval_of_samples_compared_with_themselves_is_symmetric() -> None:
    low, high = estimate_ratio([1.0, 1.0, 1.0, 2.0, 2.0, 2.5], [1.0, 1.0, 1.0, 2.0, 2.0, 2.5], 0.95).interval
    assert low == pytest.approx(1 / high)


def test_same_samples_same_interval() -> None:
    samples = ([1.0, 1.1, 0.9, 1.2, 1.0, 1.05], [1.1, 1.2, 1.0, 1.1, 0.9, 1.3])
    assert estimate_ratio(*samples, 0.95) == estimate_ratio(*samples, 0.95)


def test_more_confidence_is_a_wider_interval() -> None:
    samples = ([1.0, 1.1, 0.9, 1.2, 1.0, 1.05, 1.3, 0.8, 1.0, 1.1], [1.1, 1.2, 1.0, 1.1, 0.9, 1.3, 0.7, 1.0, 1.2, 0.95])
    narrow, wide = estimate_paired_ratio(*samples, 0.8).interval, estimate_paired_ratio(*samples, 0.99).interval
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


@pytest.mark.parametrize(
    ("baseline", "candidate", "expected"),
    [
        ([1.0] * 5, [1.0] * 5, "needs 6"),
        ([1.0] * 6, [0.0] * 6, "above 0"),
        ([1.0] * 6, [math.nan] * 6, "above 0"),
        ([1.0] * 6, [1.0] * 7, "not pairs"),
    ],
)
def test_samples_without_an_interval_are_rejected(baseline: list[float], candidate: list[float], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        estimate_paired_ratio(baseline, candidate, 0.95)
