"""Decides whether the offered load is the requested load, for every generator; no other module does."""

from __future__ import annotations

from collections.abc import Sequence

from ringroad_lab.generator.interface import WrappedGenerator
from ringroad_lab.trial import DirectionCounts, TrialRequest, TrialResult, TrialVerdict

# Tolerance for the number of frames and for the duration, as a fraction; the same as in `ringroad trial`.
TOLERANCE = 0.001
# Smallest tolerance: smaller differences are caused by the scheduler rather than by the load.
LEAST_TOLERANCE_S = 0.001
# Foreign frames that do not disturb a trial: a few of the kernel's or the device's own protocols.
FOREIGN_FRAMES = 10


class CheckedGenerator(WrappedGenerator):
    """A generator whose trials are invalid if the offered load is not the requested load; not every generator checks that itself."""

    def trial(self, request: TrialRequest) -> TrialResult:
        """Offer a load, and check it."""
        result = self._generator.trial(request)
        if not result.is_valid and not result.sent_frames:
            # The generator has reported why.
            return result
        if not (reasons := contradictions(result.request, result.directions)):
            return result
        return result.model_copy(update={"verdict": TrialVerdict.INVALID, "reasons": (*result.reasons, *reasons)})


def contradictions(request: TrialRequest, directions: Sequence[DirectionCounts]) -> list[str]:
    """Return the differences between the trial and the request, a sentence each."""
    return [reason for direction in directions for reason in _of_direction(request, direction)]


def asked_s(request: TrialRequest) -> float:
    """Return the requested sending time, s."""
    load = request.load
    return load.burst_frames / load.rate_fps if load.burst_frames is not None else request.duration_s


def tolerance_s(request: TrialRequest) -> float:
    """Return the tolerance of the sending time, s."""
    # A load ends when its last frame is out: up to one frame's time before its duration.
    return max(LEAST_TOLERANCE_S, TOLERANCE * asked_s(request), 1 / request.load.rate_fps)


def _of_direction(request: TrialRequest, direction: DirectionCounts) -> list[str]:
    load, name = request.load, f"{direction.sender} to {direction.receiver}"
    if not direction.sent_frames:
        return [f"{name}: no frame was sent"]
    reasons = []
    requested = load.burst_frames if load.burst_frames is not None else load.rate_fps * request.duration_s
    missing = requested - direction.sent_frames
    # One frame more or less is the rounding of rate times duration.
    if abs(missing) > max(1.0, TOLERANCE * requested):
        part = f"{100 * abs(missing) / requested:.3g} % {'less' if missing > 0 else 'more'}"
        reasons.append(f"{name}: the generator sent {direction.sent_frames} frames of {requested:.0f} requested, {part}")
    error_s = direction.transmit_s - asked_s(request)
    # The same frames over a longer time are a different load. A burst may be faster.
    if (error_s if load.burst_frames is not None else abs(error_s)) > tolerance_s(request):
        reasons.append(f"{name}: sending took {direction.transmit_s:.4f} s, not {asked_s(request):.4f} s")
    if direction.received_frames > direction.sent_frames:
        reasons.append(
            f"{name}: {direction.received_frames} different frames arrived of {direction.sent_frames} sent; the counts are wrong"
        )
    if direction.foreign_frames > max(FOREIGN_FRAMES, TOLERANCE * direction.received_frames):
        reasons.append(f"{name}: {direction.foreign_frames} frames arrived that are not of this trial: there is another sender")
    return reasons
