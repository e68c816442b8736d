"""How a trial is judged: traps that other testers fell into."""

from __future__ import annotations

from typing import Any

import pytest

from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.method.judge import Judgement, judge
from ringroad_lab.trial import DirectionCounts, Load, TrialRequest, TrialResult, TrialVerdict


def trial(*directions: dict[str, Any], verdict: TrialVerdict = TrialVerdict.VALID, burst_frames: int | None = None) -> TrialResult:
    """Return a trial of 1000 frames in a second each way, but for what is said."""
    usual = {"sender": "a", "receiver": "b", "intended_frames": 1000, "sent_frames": 1000, "received_frames": 1000, "transmit_s": 1.0}
    return TrialResult(
        request=TrialRequest(load=Load(frame=parse_frame_mix("64"), rate_fps=1000.0, burst_frames=burst_frames), duration_s=1.0),
        started_at=0.0,
        verdict=verdict,
        directions=tuple(DirectionCounts(**(usual | direction)) for direction in directions),
    )


def test_no_loss_passes_and_one_frame_fails() -> None:
    assert judge(trial({}), 0.0).judgement is Judgement.PASS
    assert judge(trial({"received_frames": 999}), 0.0).judgement is Judgement.FAIL


def test_acceptable_loss_passes_to_the_frame() -> None:
    assert judge(trial({"received_frames": 995}), 0.005).judgement is Judgement.PASS
    assert judge(trial({"received_frames": 994}), 0.005).judgement is Judgement.FAIL


def test_duplicates_do_not_hide_loss() -> None:
    assert judge(trial({"received_frames": 990, "duplicate_frames": 10}), 0.0).judgement is Judgement.FAIL


def test_foreign_frames_do_not_hide_loss() -> None:
    assert judge(trial({"received_frames": 990, "foreign_frames": 10}), 0.0).judgement is Judgement.FAIL


def test_surplus_of_one_direction_does_not_hide_the_loss_of_the_other() -> None:
    judged = judge(trial({"received_frames": 1010}, {"received_frames": 990}), 0.0)
    assert judged.judgement is not Judgement.PASS


@pytest.mark.parametrize("received", [500, 400, 0])
def test_unsent_frames_are_neither_loss_nor_success(received: int) -> None:
    judged = judge(trial({"sent_frames": 500, "received_frames": received}), 0.0)
    assert judged.judgement is Judgement.NOTHING
    assert "500 frames, not 1000" in judged.reasons[0]


def test_all_frames_in_too_long_a_time_are_another_load() -> None:
    judged = judge(trial({"transmit_s": 1.7}), 0.0)
    assert judged.judgement is Judgement.NOTHING
    assert "1.700 s" in judged.reasons[0]


def test_too_fast_is_another_load_but_not_for_bursts() -> None:
    assert judge(trial({"transmit_s": 0.5}), 0.0).judgement is Judgement.NOTHING
    assert judge(trial({"transmit_s": 0.5}, burst_frames=1000), 0.0).judgement is Judgement.PASS
    assert judge(trial({"transmit_s": 1.5}, burst_frames=1000), 0.0).judgement is Judgement.NOTHING


def test_nothing_sent_is_not_no_loss() -> None:
    judged = judge(trial({"sent_frames": 0, "intended_frames": 0, "received_frames": 0, "transmit_s": 0.0}), 0.0)
    assert judged.judgement is Judgement.NOTHING


def test_more_arrived_than_sent_is_a_contradiction() -> None:
    assert judge(trial({"received_frames": 1001}), 0.0).judgement is Judgement.NOTHING


def test_a_trial_that_the_generator_calls_invalid_is_invalid() -> None:
    judged = judge(trial({"received_frames": 0}, verdict=TrialVerdict.INVALID), 0.0)
    assert judged.judgement is Judgement.NOTHING
    assert judged.reasons
