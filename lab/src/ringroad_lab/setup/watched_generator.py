"""A generator whose trials are checked against the test setup that they passed through."""

from __future__ import annotations

from collections.abc import Callable

from ringroad_lab.errors import GeneratorError
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.generator.interface import Generator, WrappedGenerator
from ringroad_lab.record import GeneratorCeiling
from ringroad_lab.trial import TrialRequest, TrialResult, TrialVerdict

PROBE = "probe"
"""Purpose of trials that begin before all ends are connected."""
# Fraction of the frames that must be missing before a trial contradicts a ceiling; the same as in the judgement of trials.
CONTRADICTION = 0.005


class WatchedGenerator(WrappedGenerator):
    """A generator whose trials are valid only while the device is running, and only up to the generator's ceiling."""

    def __init__(
        self,
        generator: Generator,
        check: Callable[[], None],
        ceiling: Callable[[FrameMix], GeneratorCeiling | None],
        on_contradiction: Callable[[FrameMix, str], None],
    ) -> None:
        """Take the generator, and three functions.

        `check` raises an error if a part of the setup has ended. `ceiling` returns the generator's ceiling for frames. `on_contradiction`
        is called with a description if a trial contradicts a ceiling.
        """
        super().__init__(generator)
        self._check = check
        self._ceiling = ceiling
        self._on_contradiction = on_contradiction

    def trial(self, request: TrialRequest) -> TrialResult:
        """Offer a load.

        Raises:
            DutError: frames were lost because the device ended.
            GuestError: frames were lost because a guest ended.
            GeneratorError: the generator ended, or the load could not be offered.
        """
        try:
            result = self._generator.trial(request)
        except GeneratorError:
            # A device that ends may take the generator's ports with it: then report the device's end.
            self._check()
            raise
        if not result.is_valid or result.lost_frames:
            self._check()
        ceiling = self._ceiling(request.load.frame)
        if ceiling is None:
            return result
        if request.purpose != PROBE and (cause := contradiction(result, ceiling)):
            self._on_contradiction(request.load.frame, cause)
        refused = sum(way.refused_frames for way in result.directions)
        if refused and request.load.rate_fps > ceiling.ceiling_fps:
            # The generator's ring would have been full without a device, too.
            own = f"{ceiling.ceiling_fps:.0f} frames/s that the generator carries by itself"
            reason = f"{refused} frames found no room, at a load above the {own}"
            return result.model_copy(update={"verdict": TrialVerdict.INVALID, "reasons": (*result.reasons, reason)})
        return result


def contradiction(result: TrialResult, ceiling: GeneratorCeiling) -> str:
    """Describe how a trial contradicts the generator's ceiling; empty if it does not.

    Only constant loads can: a burst may be faster than its rate. A device that holds the sender up is not a contradiction. Neither is a
    trial that sent nothing: then there was no receiver.
    """
    load = result.request.load
    if load.burst_frames is not None or not all(way.sent_frames for way in result.directions):
        return ""
    own = f"its ceiling was measured as {ceiling.ceiling_fps:.0f} frames/s"
    if load.rate_fps > ceiling.ceiling_fps * (1 + CONTRADICTION):
        is_carried = result.is_valid and not result.lost_frames
        return f"the generator carried {load.rate_fps:.0f} frames/s, and {own}" if is_carried else ""
    for way in result.directions:
        is_held_up = way.loss is not None and way.loss.is_refused_by_device
        offered = way.sent_frames - (0 if is_held_up else way.refused_frames)
        if offered < way.intended_frames * (1 - CONTRADICTION):
            return f"the generator offered {offered} frames of {way.intended_frames} at {load.rate_fps:.0f} frames/s, and {own}"
    return ""
