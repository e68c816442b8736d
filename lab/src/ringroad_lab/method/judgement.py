"""Judges what a valid trial shows about the device. `generator.offered_load` decides whether the offered load is the requested load."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ringroad_lab.loss import loss_text
from ringroad_lab.trial import TrialResult

# Part of the frames that may be lost outside the device in a trial whose loss ratio is still valid.
OUTSIDE_TOLERANCE = 0.005


class Judgement(StrEnum):
    """Verdict of a trial on its load."""

    PASS = "pass"
    FAIL = "fail"
    """The device lost more than is acceptable."""
    NOTHING = "nothing"
    """The generator did not offer the load, or frames were lost outside the device: the trial shows nothing about the device."""


@dataclass(frozen=True)
class JudgedTrial:
    """A trial and its judgement."""

    result: TrialResult
    judgement: Judgement
    reasons: tuple[str, ...] = ()
    """Reasons why the trial shows nothing."""
    is_lost_outside: bool = False
    """Whether the trial shows nothing only because frames were lost outside the device. The device can forward at least what arrived."""

    @property
    def passes(self) -> bool:
        """Whether the device carried the load."""
        return self.judgement is Judgement.PASS

    @property
    def counts(self) -> bool:
        """Whether the trial shows something about the device."""
        return self.judgement is not Judgement.NOTHING

    @property
    def reports_ratio(self) -> bool:
        """Whether the loss ratio is valid for the requested load: that load reached the device.

        A trial that fails at a lower load still fails.
        """
        ahead = self.result.loss.ahead_of_device if self.result.loss else 0
        return self.counts and ahead <= OUTSIDE_TOLERANCE * self.result.sent_frames

    @property
    def is_forwarded_more(self) -> bool:
        """Whether the device may forward more than arrived, because frames were lost elsewhere."""
        outside = self.result.lost_frames - self.result.device_lost_frames
        return outside > OUTSIDE_TOLERANCE * self.result.sent_frames


def judge(result: TrialResult, acceptable_loss_ratio: float) -> JudgedTrial:
    """Judge a trial.

    An invalid trial is neither loss nor success. Duplicates do not compensate for loss, because the trial counts distinct frames. Only loss
    inside the device counts against the device.
    """
    if not result.is_valid:
        return JudgedTrial(result, Judgement.NOTHING, result.reasons or ("the generator reports the trial as invalid",))
    acceptable_frames = acceptable_loss_ratio * result.sent_frames
    if result.lost_frames <= acceptable_frames:
        return JudgedTrial(result, Judgement.PASS)
    if result.device_lost_frames > acceptable_frames:
        return JudgedTrial(result, Judgement.FAIL)
    return JudgedTrial(result, Judgement.NOTHING, (outside_reason(result),), is_lost_outside=True)


def outside_reason(result: TrialResult) -> str:
    """Return the reason that frames were lost outside the device, with the places of all lost frames."""
    return f"frames were lost outside the device: {loss_text(result.loss) if result.loss else 'the place is unknown'}"
