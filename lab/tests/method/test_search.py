"""The search algorithm alone, on any pattern of passes and failures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.method.judgement import JudgedTrial, Judgement
from ringroad_lab.method.search import Probe, SearchGrid, search_greatest, validate
from ringroad_lab.trial import DirectionCounts, Load, TrialRequest, TrialResult, TrialVerdict

_RESULT = TrialResult(
    request=TrialRequest(load=Load(frame=parse_frame_mix("64"), rate_fps=1.0), duration_s=1.0),
    started_at=0.0,
    verdict=TrialVerdict.VALID,
    directions=(DirectionCounts(sender="a", receiver="b", intended_frames=1, sent_frames=1, received_frames=1, transmit_s=1.0),),
)


def judged(judgement: Judgement) -> JudgedTrial:
    """Return a trial with this judgement; its other values do not matter."""
    return JudgedTrial(_RESULT, judgement)


def probe_of(capacity: float, tried: list[float]) -> Probe:
    """Return the probe of a device with this capacity."""

    def probe(value: float) -> JudgedTrial:
        tried.append(value)
        return judged(Judgement.PASS if value <= capacity else Judgement.FAIL)

    return probe


@given(
    capacity=st.floats(0.0, 2e9),
    maximum=st.floats(1.0, 1e9),
    minimum_ratio=st.floats(1e-6, 1.0),
    start_ratio=st.floats(0.0, 2.0),
    resolution=st.floats(1e-4, 0.5),
)
def test_rate_is_found_within_the_resolution(
    capacity: float, maximum: float, minimum_ratio: float, start_ratio: float, resolution: float
) -> None:
    tried: list[float] = []
    grid = SearchGrid(minimum=maximum * minimum_ratio, maximum=maximum, resolution=resolution)
    found = search_greatest(probe_of(capacity, tried), grid, start_ratio * maximum)
    assert all(grid.minimum <= value <= grid.maximum for value in tried)
    assert len(tried) == len(set(tried)), "a value was tried twice"
    if capacity >= maximum:
        assert (found.passed, found.refused) == (maximum, None)
    elif capacity < grid.minimum:
        assert (found.passed, found.refused) == (None, grid.minimum)
    else:
        assert found.passed is not None
        assert found.refused is not None
        assert found.passed <= capacity < found.refused
        assert found.refused - found.passed <= resolution * found.refused


def test_no_passing_value_is_detected_without_a_full_search() -> None:
    tried: list[float] = []
    found = search_greatest(probe_of(0.0, tried), SearchGrid(minimum=1.0, maximum=1000.0, resolution=0.001), 1000.0)
    assert (found.passed, found.refused) == (None, 1.0)
    assert len(tried) <= 12


@given(capacity=st.integers(0, 200_000), maximum=st.integers(1, 100_000), start=st.integers(0, 200_000), step=st.integers(1, 50))
def test_whole_number_is_found_within_the_step(capacity: int, maximum: int, start: int, step: int) -> None:
    tried: list[float] = []
    found = search_greatest(probe_of(capacity, tried), SearchGrid(minimum=1.0, maximum=float(maximum), step=float(step)), float(start))
    assert all(value == int(value) and 1 <= value <= maximum for value in tried)
    if capacity >= maximum:
        assert found.passed == maximum
    elif capacity < 1:
        assert found.passed is None
    else:
        assert found.passed is not None
        assert found.passed <= capacity < found.passed + step


@given(
    pattern=st.lists(st.sampled_from(list(Judgement)), max_size=200),
    validation=st.lists(st.sampled_from(list(Judgement)), max_size=200),
    start_ratio=st.floats(0.0, 1.0),
    resolution=st.floats(1e-3, 0.5),
    step=st.sampled_from([0.0, 1.0, 7.0]),
)
def test_ends_within_its_limits_on_any_pattern(
    pattern: list[Judgement], validation: list[Judgement], start_ratio: float, resolution: float, step: float
) -> None:
    tried: list[float] = []
    grid = SearchGrid(minimum=1.0, maximum=1e5, resolution=resolution, step=step)

    def probe_from(judgements: list[Judgement]) -> Probe:
        rest = iter(judgements)

        def probe(value: float) -> JudgedTrial:
            tried.append(value)
            assert len(tried) < 200, "the search does not end"
            return judged(next(rest, Judgement.FAIL))

        return probe

    found = search_greatest(probe_from(pattern), grid, start_ratio * grid.maximum)
    bracket = validate(probe_from(validation), grid, found)
    assert all(grid.minimum <= value <= grid.maximum for value in tried)
    if bracket.passed is not None and bracket.refused is not None:
        assert bracket.passed < bracket.refused
        assert grid.is_narrow(bracket.passed, bracket.refused)
    assert (bracket.refused is None) == (bracket.refusal is None)


@given(found_at=st.floats(100.0, 1e6), true_capacity=st.floats(0.0, 1e6), resolution=st.floats(1e-3, 0.2))
def test_validation_finds_a_rate_that_lasts(found_at: float, true_capacity: float, resolution: float) -> None:
    grid = SearchGrid(minimum=100.0, maximum=1e6, resolution=resolution)
    found = search_greatest(probe_of(found_at, []), grid, grid.maximum)
    bracket = validate(probe_of(true_capacity, []), grid, found)
    if true_capacity < grid.minimum:
        assert bracket.passed is None
    elif true_capacity >= found_at:
        assert bracket == found
    else:
        assert bracket.passed is not None
        assert bracket.passed <= true_capacity
        assert bracket.refused is None or bracket.refused - bracket.passed <= resolution * bracket.refused


def test_a_weak_generator_differs_from_a_losing_device() -> None:
    def probe(value: float) -> JudgedTrial:
        return judged(Judgement.PASS if value <= 500 else Judgement.NOTHING)

    found = search_greatest(probe, SearchGrid(minimum=1.0, maximum=1000.0, resolution=0.01), 1000.0)
    assert found.passed == pytest.approx(500, rel=0.01)
    assert found.refusal is not None
    assert not found.refusal.counts
