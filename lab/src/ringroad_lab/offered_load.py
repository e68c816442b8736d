"""Whether what was sent is the load that was asked for: the one judgement of it, for every generator and every method."""

from __future__ import annotations

from collections.abc import Sequence

from ringroad_lab.trial import DirectionCounts, TrialRequest

# Part of the frames that may be missing, and of the duration that it may be off; as `ringroad trial` has it.
TOLERANCE = 0.001
# Below this, times are those of the scheduler rather than of the load.
LEAST_TOLERANCE_S = 0.001


def contradictions(request: TrialRequest, directions: Sequence[DirectionCounts]) -> list[str]:
    """Return in what the trial is not what was asked for: a sentence for each reason."""
    return [reason for direction in directions for reason in _of_direction(request, direction)]


def asked_s(request: TrialRequest) -> float:
    """Time that sending is to take, s."""
    load = request.load
    return load.burst_frames / load.rate_fps if load.burst_frames is not None else request.duration_s


def tolerance_s(request: TrialRequest) -> float:
    """How far the time that sending took may be off, s."""
    # A load ends when its last frame is out: up to one frame's time before its duration.
    return max(LEAST_TOLERANCE_S, TOLERANCE * asked_s(request), 1 / request.load.rate_fps)


def _of_direction(request: TrialRequest, direction: DirectionCounts) -> list[str]:
    load, name = request.load, f"{direction.sender} to {direction.receiver}"
    if not direction.sent_frames:
        return [f"{name}: no frame was sent"]
    reasons = []
    asked = load.burst_frames if load.burst_frames is not None else load.rate_fps * request.duration_s
    missing = asked - direction.sent_frames
    # One frame more or less is the rounding of rate times duration.
    if abs(missing) > max(1.0, TOLERANCE * asked):
        part = f"{100 * abs(missing) / asked:.3g} % {'less' if missing > 0 else 'more'}"
        reasons.append(f"{name}: the generator sent {direction.sent_frames} frames of {asked:.0f} asked for, {part}")
    error_s = direction.transmit_s - asked_s(request)
    # The same frames over a longer time are another load. A burst may be faster.
    if (error_s if load.burst_frames is not None else abs(error_s)) > tolerance_s(request):
        reasons.append(f"{name}: sending took {direction.transmit_s:.4f} s, not {asked_s(request):.4f} s")
    if direction.received_frames > direction.sent_frames:
        reasons.append(
            f"{name}: {direction.received_frames} different frames arrived of {direction.sent_frames} sent; the counts are wrong"
        )
    return reasons
