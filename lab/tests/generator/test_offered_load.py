"""A trial is invalid if the offered load is not the requested load, whatever the generator reports."""

from __future__ import annotations

import pytest

from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.generator.interface import Generator
from ringroad_lab.generator.offered_load import FOREIGN_FRAMES, CheckedGenerator
from ringroad_lab.method.judgement import Judgement, judge
from ringroad_lab.trial import DirectionCounts, Load, TrialRequest, TrialResult, TrialVerdict


class Reporting(Generator):
    """A generator that reports a direction of 1000 frames in a second, except for the given values, as valid."""

    def __init__(self, **differs: float) -> None:
        self._differs = differs
        self.verdict = TrialVerdict.VALID
        self.reasons: tuple[str, ...] = ()

    def trial(self, request: TrialRequest) -> TrialResult:
        usual = {"sender": "a", "receiver": "b", "intended_frames": 1000, "sent_frames": 1000, "received_frames": 1000, "transmit_s": 1.0}
        way = DirectionCounts.model_validate(usual | self._differs)
        return TrialResult(request=request, started_at=0.0, verdict=self.verdict, reasons=self.reasons, directions=(way,))

    def version(self) -> str:
        return "reporting"


def checked(generator: Generator, burst_frames: int | None = None) -> TrialResult:
    load = Load(frame=parse_frame_mix("64"), rate_fps=1000.0, bidirectional=False, burst_frames=burst_frames)
    request = TrialRequest(load=load, duration_s=1.0)
    return CheckedGenerator(generator).trial(request)


def test_a_trial_of_the_requested_load_is_unchanged() -> None:
    result = checked(Reporting(received_frames=990, foreign_frames=FOREIGN_FRAMES))
    assert (result.verdict, result.reasons) == (TrialVerdict.VALID, ())


@pytest.mark.parametrize("received", [500, 400, 0])
def test_unsent_frames_are_neither_loss_nor_success(received: int) -> None:
    result = checked(Reporting(sent_frames=500, received_frames=received))
    assert result.verdict is TrialVerdict.INVALID
    assert "500 frames of 1000" in result.reasons[0]
    judged = judge(result, 0.0)
    assert (judged.judgement, judged.reasons) == (Judgement.NOTHING, result.reasons)


def test_sending_all_frames_too_slowly_is_another_load() -> None:
    assert "1.7000 s" in checked(Reporting(transmit_s=1.7)).reasons[0]


def test_sending_too_fast_is_another_load_except_for_bursts() -> None:
    assert not checked(Reporting(transmit_s=0.5)).is_valid
    assert checked(Reporting(transmit_s=0.5), burst_frames=1000).is_valid
    assert not checked(Reporting(transmit_s=1.5), burst_frames=1000).is_valid


def test_no_frames_sent_does_not_count_as_no_loss() -> None:
    result = checked(Reporting(sent_frames=0, intended_frames=0, received_frames=0, transmit_s=0.0))
    assert result.reasons == ("a to b: no frame was sent",)


def test_more_frames_received_than_sent_is_a_contradiction() -> None:
    assert not checked(Reporting(received_frames=1001)).is_valid


def test_more_than_a_few_foreign_frames_come_from_another_sender() -> None:
    result = checked(Reporting(foreign_frames=FOREIGN_FRAMES + 1))
    assert result.reasons == ("a to b: 11 frames arrived that are not of this trial: there is another sender",)


def test_the_reasons_of_the_generator_come_first_and_suffice_if_nothing_was_sent() -> None:
    generator = Reporting(sent_frames=500)
    generator.verdict, generator.reasons = TrialVerdict.INVALID, ("its port failed",)
    first, second = checked(generator).reasons[:2]
    assert (first, "500 frames of 1000" in second) == ("its port failed", True)
    silent = Reporting(sent_frames=0, received_frames=0)
    silent.verdict, silent.reasons = TrialVerdict.INVALID, ("its port failed",)
    assert checked(silent).reasons == ("its port failed",)
