"""The judgement whether the generator carried the load."""

from __future__ import annotations

from collections.abc import Sequence

from ringroad_lab.generator.otg_client import TrialDetail
from ringroad_lab.trial import DirectionCounts, TrialRequest

# Part of the intended frames that may be missing, and of the duration that it may be off; as `ringroad trial` has it.
TOLERANCE = 0.001
# Below this, times are those of the scheduler rather than of the load.
LEAST_TOLERANCE_S = 0.001
# Frames of others, beside those of the trial, that disturb nothing: a few of the kernel's or the device's own protocols.
FOREIGN_FRAMES = 10


def judge(request: TrialRequest, counts: Sequence[DirectionCounts], detail: TrialDetail | None) -> list[str]:
    """Return why the trial says nothing about the device under test: a sentence for each reason."""
    reasons = []
    if detail is not None and detail.failure is not None:
        reasons.append(f"the generator's port {detail.failure.port or '?'} failed: {detail.failure.reason}")
    for direction in counts:
        name = f"{direction.sender} to {direction.receiver}"
        if not direction.sent_frames:
            reasons.append(f"{name}: the generator sent nothing")
            continue
        missing = direction.intended_frames - direction.sent_frames
        # One frame more or less is the rounding of rate times duration.
        if abs(missing) > max(1.0, TOLERANCE * direction.intended_frames):
            part = 100 * abs(missing) / direction.intended_frames
            reasons.append(
                f"{name}: the generator sent {direction.sent_frames} frames of {direction.intended_frames} asked for, "
                f"{part:.3g} % {'less' if missing > 0 else 'more'}"
            )
        reasons += _duration(request, direction, name)
        if direction.foreign_frames > max(FOREIGN_FRAMES, TOLERANCE * direction.received_frames):
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


def asked_s(request: TrialRequest) -> float:
    """Time that sending is to take, s."""
    load = request.load
    return load.burst_frames / load.rate_fps if load.burst_frames is not None else request.duration_s


def tolerance_s(request: TrialRequest) -> float:
    """How far the time that sending took may be off, s."""
    # A load ends when its last frame is out: up to one frame's time before its duration.
    return max(LEAST_TOLERANCE_S, TOLERANCE * asked_s(request), 1 / request.load.rate_fps)


def _duration(request: TrialRequest, direction: DirectionCounts, name: str) -> list[str]:
    """Say whether sending took another time than asked: the same frames over a longer time are another load."""
    error_s = direction.transmit_s - asked_s(request)
    # A burst may be faster.
    is_off = (error_s if request.load.burst_frames is not None else abs(error_s)) > tolerance_s(request)
    return [f"{name}: sending took {direction.transmit_s:.4f} s, not {asked_s(request):.4f} s"] if is_off else []
