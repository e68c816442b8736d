"""How trials are judged, including mistakes that other testers make."""

from __future__ import annotations

from typing import Any

import pytest

from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.method.judgement import Judgement, judge
from ringroad_lab.trial import DirectionCounts, Load, LossByPlace, TrialRequest, TrialResult, TrialVerdict


def trial(*directions: dict[str, Any], verdict: TrialVerdict = TrialVerdict.VALID) -> TrialResult:
    """Return a trial of 1000 frames in a second in each direction, except for the given values."""
    usual = {"sender": "a", "receiver": "b", "intended_frames": 1000, "sent_frames": 1000, "received_frames": 1000, "transmit_s": 1.0}
    return TrialResult(
        request=TrialRequest(load=Load(frame=parse_frame_mix("64"), rate_fps=1000.0), duration_s=1.0),
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


def test_extra_frames_of_one_direction_do_not_hide_the_loss_of_the_other() -> None:
    judged = judge(trial({"received_frames": 1010}, {"received_frames": 990}), 0.0)
    assert judged.judgement is not Judgement.PASS


def test_a_trial_that_the_generator_reports_as_invalid_is_invalid() -> None:
    judged = judge(trial({"received_frames": 0}, verdict=TrialVerdict.INVALID), 0.0)
    assert judged.judgement is Judgement.NOTHING
    assert judged.reasons


def lost(**places: int) -> dict[str, Any]:
    """Return a direction of 1000 frames that were lost at these places."""
    nowhere = {"refused": 0, "before_device": 0, "in_device": 0, "in_guests": 0, "behind_device": 0, "at_receiver": 0, "unexplained": 0}
    return {"received_frames": 1000 - sum(places.values()), "loss": LossByPlace.model_validate(nowhere | places)}


@pytest.mark.parametrize("place", ["refused", "before_device", "behind_device", "at_receiver"])
def test_loss_outside_the_device_is_neither_its_failure_nor_its_success(place: str) -> None:
    judged = judge(trial({}, lost(**{place: 100})), 0.0)
    assert judged.judgement is Judgement.NOTHING
    assert judged.is_lost_outside
    assert judged.is_forwarded_more
    assert "frames were lost outside the device: 100 " in judged.reasons[0]


@pytest.mark.parametrize("place", ["in_device", "in_guests", "unexplained"])
def test_loss_in_the_device_and_unexplained_loss_fail(place: str) -> None:
    judged = judge(trial(lost(at_receiver=100), lost(**{place: 1})), 0.0)
    assert judged.judgement is Judgement.FAIL
    assert judged.result.device_lost_frames == 1


def test_acceptable_device_loss_with_loss_elsewhere_is_not_judged() -> None:
    assert judge(trial(lost(in_device=5, at_receiver=1)), 0.005).judgement is Judgement.NOTHING
    assert judge(trial(lost(in_device=4, at_receiver=1)), 0.005).judgement is Judgement.PASS
    assert judge(trial(lost(in_device=6, at_receiver=1)), 0.005).judgement is Judgement.FAIL


def test_frames_refused_because_the_device_leaves_a_ring_full_are_its_loss() -> None:
    direction = lost(refused=100)
    direction["loss"] = direction["loss"].model_copy(update={"is_refused_by_device": True})
    judged = judge(trial(direction), 0.0)
    assert judged.judgement is Judgement.FAIL
    assert judged.reports_ratio


def test_a_loss_ratio_is_valid_only_if_the_load_reached_the_device() -> None:
    assert judge(trial(lost(in_device=10, behind_device=100)), 0.0).reports_ratio
    assert not judge(trial(lost(in_device=10, before_device=100)), 0.0).reports_ratio
    assert not judge(trial(lost(in_device=10, refused=100)), 0.0).reports_ratio
