"""What a generator knows beyond its counts that makes a trial say nothing about the device under test."""

from __future__ import annotations

from collections.abc import Sequence

from ringroad_lab.generator.otg_client import TrialDetail
from ringroad_lab.offered_load import TOLERANCE, contradictions
from ringroad_lab.trial import DirectionCounts, TrialRequest

# Frames of others, beside those of the trial, that disturb nothing: a few of the kernel's or the device's own protocols.
FOREIGN_FRAMES = 10


def judge(request: TrialRequest, counts: Sequence[DirectionCounts], detail: TrialDetail | None) -> list[str]:
    """Return why the trial says nothing about the device under test: a sentence for each reason."""
    reasons = []
    if detail is not None and detail.failure is not None:
        reasons.append(f"the generator's port {detail.failure.port or '?'} failed: {detail.failure.reason}")
    reasons += contradictions(request, counts)
    for direction in counts:
        if direction.foreign_frames > max(FOREIGN_FRAMES, TOLERANCE * direction.received_frames):
            name = f"{direction.sender} to {direction.receiver}"
            reasons.append(f"{name}: {direction.foreign_frames} frames arrived that are not of this trial: somebody else sends")
    # Under an attack a device may be far behind: frames that it has not taken are lost, and it is asked elsewhere whether it lives.
    if detail is not None and not request.load.attack_fps:
        for port in detail.ports:
            if port.unsent_slots:
                reasons.append(
                    f"port {port.port}: {port.unsent_slots} of the frames handed over were never taken: "
                    "the device has stopped, or is not connected"
                )
    return reasons
