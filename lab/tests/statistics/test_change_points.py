"""Change points of synthetic series: found where they exist, and not elsewhere."""

import numpy as np
import pytest

from ringroad_lab.record import Better
from ringroad_lab.statistics.change_points import ChangePoint, change_points, visible_steps
from ringroad_lab.statistics.verdict import Verdict

SERIES = 200
# Runs of a trend, and the first on the new level.
RUNS = 18
EARLY, MIDDLE, LATE = 4, 9, 14


def noisy_series(seed: int, *, points: int = RUNS, noise: float = 0.03, step: float = 0.0, at: int = MIDDLE, tails: int = 0) -> list[float]:
    """Return a series whose points from `at` on are smaller by `step`; `tails`: degrees of freedom of Student's t."""
    random = np.random.default_rng(seed)
    disturbance = random.standard_t(tails, points) / (tails / (tails - 2)) ** 0.5 if tails else random.standard_normal(points)
    series = 1e6 * (1 + noise * disturbance)
    series[at:] *= 1 - step
    return [float(value) for value in series]


def share_found(noise: float, step: float, at: int, *, points: int = RUNS, count: int = SERIES) -> float:
    """Return the share of series whose step is found at most one run from its position."""
    found = (change_points(noisy_series(seed, points=points, noise=noise, step=step, at=at)) for seed in range(count))
    return sum(any(abs(point.index - at) <= 1 and point.mean_after < point.mean_before for point in each) for each in found) / count


@pytest.mark.parametrize(("points", "tails"), [(10, 0), (18, 0), (18, 3), (40, 0), (100, 3)])
@pytest.mark.parametrize("noise", [0.025, 0.1])
def test_series_without_a_step_rarely_have_a_change_point(points: int, tails: int, noise: float) -> None:
    alarms = sum(bool(change_points(noisy_series(seed, points=points, noise=noise, tails=tails))) for seed in range(2 * SERIES))

    assert alarms <= 0.05 * 2 * SERIES


# The table of docs/lab/statistics.md: the minimum share that must be found; `at` the early, the middle and the late run.
@pytest.mark.parametrize(
    ("noise", "step", "early", "middle", "late"),
    [
        (0.01, 0.05, 0.99, 0.99, 0.99),
        (0.01, 0.1, 0.99, 0.99, 0.99),
        (0.025, 0.05, 0.6, 0.7, 0.6),
        (0.025, 0.1, 0.98, 0.98, 0.98),
        (0.025, 0.2, 0.99, 0.99, 0.99),
        (0.05, 0.1, 0.65, 0.75, 0.62),
        (0.05, 0.2, 0.98, 0.98, 0.98),
        (0.1, 0.2, 0.72, 0.77, 0.62),
    ],
)
def test_a_step_in_eighteen_runs_is_found(noise: float, step: float, early: float, middle: float, late: float) -> None:
    for at, least in ((EARLY, early), (MIDDLE, middle), (LATE, late)):
        assert share_found(noise, step, at, count=SERIES // 2) >= least, at


@pytest.mark.parametrize("noise", [0.01, 0.03, 0.1])
@pytest.mark.parametrize("points", [12, 18, 40, 100])
def test_the_smallest_visible_step_is_found_nine_times_out_of_ten(points: int, noise: float) -> None:
    # From a series with exactly this noise.
    alternating = 1 + noise * np.resize([1.0, -1.0], points) * ((points - 1) / points) ** 0.5
    smallest = visible_steps(list(alternating), ()).smallest
    assert smallest is not None
    for step, least, most in ((smallest, 0.83, 1.0), (smallest / 2, 0.0, 0.7)):
        series = (noisy_series(seed, points=points, noise=noise, step=step, at=points // 2) for seed in range(SERIES // 2))
        assert least <= sum(bool(change_points(each)) for each in series) / (SERIES // 2) <= most, step


def test_the_number_of_runs_that_a_step_needs_grows_with_the_noise() -> None:
    quiet, noisy = (visible_steps(noisy_series(1, noise=noise), ()).needed_points for noise in (0.01, 0.1))
    assert quiet == {0.05: 12, 0.1: 12, 0.2: 12}
    assert noisy[0.05] is not None
    assert noisy[0.1] is not None
    assert noisy[0.05] > noisy[0.1] > 12


def test_visible_steps_depend_on_the_noise_around_the_levels() -> None:
    series = noisy_series(1, noise=0.01, step=0.3)
    found = change_points(series)

    whole, around_levels = visible_steps(series, ()).smallest, visible_steps(series, found).smallest

    assert whole is not None
    assert around_levels is not None
    assert around_levels < 0.05 < whole


def test_steps_up_to_the_smallest_change_are_never_visible() -> None:
    visible = visible_steps(noisy_series(1, noise=0.001), (), min_change=0.15)

    assert list(visible.needed_points) == [0.2]
    assert visible.smallest is not None
    assert visible.smallest >= 0.15


@pytest.mark.parametrize("series", [[], [1.0], [1.0] * 11, [0.0] * 20])
def test_few_points_or_zeros_have_no_visible_step(series: list[float]) -> None:
    assert visible_steps(series, ()).smallest is None


def test_a_regression_and_its_repair_are_two_steps() -> None:
    found = 0
    for seed in range(SERIES // 4):
        series = noisy_series(seed, points=30, noise=0.02)
        series[10:20] = [value * 0.9 for value in series[10:20]]
        indexes = [point.index for point in change_points(series)]
        found += len(indexes) == 2 and abs(indexes[0] - 10) <= 1 and abs(indexes[1] - 20) <= 1

    assert found >= 0.8 * SERIES // 4


def test_a_step_has_an_index_means_and_a_direction() -> None:
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


def test_a_single_bad_run_is_not_a_level() -> None:
    assert change_points([100.0, 101.0, 99.0] * 6 + [50.0]) == ()


@pytest.mark.parametrize("series", [[], [1.0], [1.0, 2.0], [0.0] * 20])
def test_short_and_constant_series_have_no_change_point(series: list[float]) -> None:
    assert change_points(series) == ()


def test_a_step_from_zero_has_no_relative_change() -> None:
    assert ChangePoint(index=1, mean_before=0.0, mean_after=1.0, p_value=0.0).change is None
    (point,) = change_points([0.0] * 8 + [1.0] * 8)
    assert point.change is None


@pytest.mark.parametrize(
    ("series", "limits"),
    [([1.0, float("nan")], {}), ([1.0, float("inf")], {}), ([1.0, 2.0], {"min_change": -0.1}), ([1.0, 2.0], {"max_p_value": 1.0})],
)
def test_an_invalid_series_is_rejected(series: list[float], limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"finite|smallest"):
        change_points(series, **limits)
