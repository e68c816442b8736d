"""The judgement of a trial: only here are counts and times of a trial weighed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ringroad_lab.loss import loss_text
from ringroad_lab.offered_load import contradictions
from ringroad_lab.trial import TrialResult

# Part of the frames that may be lost outside the device in a trial that still tells its loss ratio.
OUTSIDE_TOLERANCE = 0.005


class Judgement(StrEnum):
    """What a trial says about its load."""

    PASS = "pass"
    FAIL = "fail"
    """The device lost more than is acceptable."""
    NOTHING = "nothing"
    """The generator did not offer the load, or frames were lost outside the device: nothing is known about the device."""


@dataclass(frozen=True)
class JudgedTrial:
    """A trial and what it says."""

    result: TrialResult
    judgement: Judgement
    reasons: tuple[str, ...] = ()
    """Why it says nothing."""
    is_lost_outside: bool = False
    """Whether it says nothing only because of what was lost outside the device: then what arrived is the least that the device can do."""

    @property
    def passes(self) -> bool:
        """Whether the device carried the load."""
        return self.judgement is Judgement.PASS

    @property
    def counts(self) -> bool:
        """Whether it says something about the device."""
        return self.judgement is not Judgement.NOTHING

    @property
    def reports_ratio(self) -> bool:
        """Whether the device's loss ratio in it is that of the load asked for. One that fails at less than its load fails all the same."""
        ahead = self.result.loss.ahead_of_device if self.result.loss else 0
        return self.counts and ahead <= OUTSIDE_TOLERANCE * self.result.sent_frames

    @property
    def is_forwarded_more(self) -> bool:
        """Whether the device may forward more than arrived: others lost some of it."""
        outside = self.result.lost_frames - self.result.device_lost_frames
        return outside > OUTSIDE_TOLERANCE * self.result.sent_frames


def judge(result: TrialResult, acceptable_loss_ratio: float) -> JudgedTrial:
    """Weigh a trial.

    Frames that the generator did not send are neither loss nor success, one that took longer than asked offered another load, and
    duplicates make up for no loss: the trial's counts are of different frames. Loss is the device's only where it happened there.
    """
    if not result.is_valid:
        return JudgedTrial(result, Judgement.NOTHING, result.reasons or ("the generator calls the trial invalid",))
    # A generator that does not judge itself is judged here.
    if reasons := contradictions(result.request, result.directions):
        return JudgedTrial(result, Judgement.NOTHING, tuple(reasons))
    acceptable_frames = acceptable_loss_ratio * result.sent_frames
    if result.lost_frames <= acceptable_frames:
        return JudgedTrial(result, Judgement.PASS)
    if result.device_lost_frames > acceptable_frames:
        return JudgedTrial(result, Judgement.FAIL)
    return JudgedTrial(result, Judgement.NOTHING, (outside_reason(result),), is_lost_outside=True)


def outside_reason(result: TrialResult) -> str:
    """Say that frames were lost outside the device, and where all were."""
    return f"frames were lost outside the device: {loss_text(result.loss) if result.loss else 'it is not known where'}"
