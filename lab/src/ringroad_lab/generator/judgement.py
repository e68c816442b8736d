"""Reasons why a trial shows nothing about the device under test, from the counts and the details of the generator."""

from __future__ import annotations

from collections.abc import Sequence

from ringroad_lab.generator.otg_client import TrialDetail
from ringroad_lab.offered_load import TOLERANCE, contradictions
from ringroad_lab.trial import DirectionCounts, TrialRequest

# Foreign frames that do not disturb a trial: a few of the kernel's or the device's own protocols.
FOREIGN_FRAMES = 10


def judge(request: TrialRequest, counts: Sequence[DirectionCounts], detail: TrialDetail | None) -> list[str]:
    """Return why the trial shows nothing about the device under test: a sentence for each reason."""
    reasons = []
    if detail is not None and detail.failure is not None:
        reasons.append(f"the generator's port {detail.failure.port or '?'} failed: {detail.failure.reason}")
    reasons += contradictions(request, counts)
    for direction in counts:
        if direction.foreign_frames > max(FOREIGN_FRAMES, TOLERANCE * direction.received_frames):
            name = f"{direction.sender} to {direction.receiver}"
            reasons.append(f"{name}: {direction.foreign_frames} frames arrived that are not of this trial: there is another sender")
    # Under an attack a device may be far behind: frames that it has not taken are lost. Other checks find out whether it is alive.
    if detail is not None and not request.load.attack_fps:
        for port in detail.ports:
            if port.unsent_slots:
                reasons.append(
                    f"port {port.port}: {port.unsent_slots} of the frames handed over were never taken: "
                    "the device has stopped, or is not connected"
                )
    return reasons
