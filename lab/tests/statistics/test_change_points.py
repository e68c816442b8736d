"""Change points of synthetic series: found where they were planted, and not where there are none."""

import numpy as np
import pytest

from ringroad_lab.record import Better
from ringroad_lab.statistics.change_points import ChangePoint, change_points
from ringroad_lab.statistics.verdict import Verdict

SERIES = 200


def noisy_series(seed: int, points: int = 40, noise: float = 0.03) -> list[float]:
    return list(1e6 * (1 + noise * np.random.default_rng(seed).standard_normal(points)))


def test_flat_series_rarely_have_a_change_point() -> None:
    alarms = sum(bool(change_points(noisy_series(seed))) for seed in range(SERIES))

    assert alarms <= 0.05 * SERIES


def test_a_step_of_twice_the_noise_is_mostly_found_where_it_is() -> None:
    found = 0
    for seed in range(SERIES):
        series = [value * (0.94 if index >= 20 else 1) for index, value in enumerate(noisy_series(seed))]
        found += any(abs(point.index - 20) <= 2 and point.mean_after < point.mean_before for point in change_points(series))

    assert found >= 0.85 * SERIES


def test_a_step_tells_index_means_and_direction() -> None:
    series = [100.0, 101.0, 99.0, 100.0, 101.0, 99.0, 100.0, 90.0, 91.0, 89.0, 90.0, 91.0, 89.0, 90.0]

    (point,) = change_points(series)

    assert point.index == 7
    assert point.mean_before == pytest.approx(100)
    assert point.mean_after == pytest.approx(90)
    assert point.change == pytest.approx(-0.1)
    assert point.verdict(Better.HIGHER) is Verdict.REGRESSION
    assert point.verdict(Better.LOWER) is Verdict.IMPROVEMENT
    assert point.verdict(Better.NEITHER) is Verdict.INCONCLUSIVE


def test_steps_below_the_limit_are_not_reported() -> None:
    series = [100.0, 100.1, 99.9] * 5 + [98.0, 98.1, 97.9] * 5

    assert len(change_points(series, min_change=0.01)) == 1
    assert change_points(series, min_change=0.03) == ()


def test_levels_without_noise_are_distinguished() -> None:
    (point,) = change_points([5.0] * 8 + [7.0] * 8)

    assert (point.index, point.mean_before, point.mean_after) == (8, 5.0, 7.0)


@pytest.mark.parametrize("series", [[], [1.0], [1.0, 2.0], [0.0] * 20])
def test_short_and_constant_series_have_no_change_point(series: list[float]) -> None:
    assert change_points(series) == ()


def test_a_step_from_zero_has_no_relative_change() -> None:
    assert ChangePoint(index=1, mean_before=0.0, mean_after=1.0, p_value=0.0).change is None


@pytest.mark.parametrize(
    ("series", "limits"),
    [([1.0, float("nan")], {}), ([1.0, float("inf")], {}), ([1.0, 2.0], {"min_change": -0.1}), ([1.0, 2.0], {"max_p_value": 1.0})],
)
def test_an_invalid_series_is_refused(series: list[float], limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"finite|smallest"):
        change_points(series, **limits)
