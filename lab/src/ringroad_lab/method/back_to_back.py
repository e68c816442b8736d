"""RFC 9004, which updates RFC 2544 section 26.4: the longest burst at the greatest rate without loss, and the resulting buffer time."""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import Annotated

from pydantic import Field

from ringroad_lab.method.search import Bracket, SearchGrid, search_greatest
from ringroad_lab.method.throughput import ThroughputSettings, throughput_of
from ringroad_lab.method.trial_series import NoFigureError, TrialMethod, TrialSeries, TrialSettings
from ringroad_lab.record import Better, MeasurementStatus, Metric, Outcome

RFC9004_REPEATS = 50
RFC2544_BURST_S = 2.0


class BackToBackSettings(TrialSettings):
    """Settings of the back-to-back method."""

    repeats: Annotated[int, Field(ge=1, le=1000)] = 5
    """Number of searches; the result is their average. RFC 2544 section 26.4: at least 50."""
    max_burst_s: Annotated[float, Field(gt=0, le=30)] = RFC2544_BURST_S
    """Length of the longest burst. RFC 2544 section 26.4: at least 2 s."""
    resolution: Annotated[float, Field(ge=0, le=0.5)] = 0.01
    """Maximum distance between the longest burst that passes and the shortest that fails, as part of the latter, or one frame."""
    loss_repeats: Annotated[int, Field(ge=0, le=20)] = 0
    """Number of times that a burst with loss is repeated before it counts."""
    throughput: ThroughputSettings = ThroughputSettings()
    """Search for the throughput, at which the device drains its buffer, if it is not known."""


class BackToBackMethod(TrialMethod):
    """RFC 9004 back-to-back frames."""

    title = "Back-to-back frames (RFC 9004)"
    settings_type = BackToBackSettings
    settings: BackToBackSettings

    def expected_s(self, trial_overhead_s: float) -> float:
        """See [`Method.expected_s`]; for an unknown throughput."""
        settings = self.settings
        halvings = 20 + (math.log2(0.01 / settings.resolution) if settings.resolution else 7)
        # The first burst of each search is the longest; the others together are about as long.
        searches_s = settings.repeats * (halvings * trial_overhead_s + 2 * settings.max_burst_s)
        return settings.throughput.expected_s(trial_overhead_s) + searches_s

    def deviations(self) -> tuple[str, ...]:
        """See [`Method.deviations`]."""
        settings = self.settings
        deviations = []
        if settings.repeats < RFC9004_REPEATS:
            deviations.append(f"Back-to-back frames are the average of {settings.repeats} searches, not of 50 (RFC 2544 section 26.4).")
        if settings.max_burst_s < RFC2544_BURST_S:
            deviations.append(f"The longest burst lasts {settings.max_burst_s:g} s, not 2 s (RFC 2544 section 26.4).")
        if settings.loss_repeats:
            deviations.append(
                f"A burst with loss counts only when {settings.loss_repeats} more confirm it "
                "(ETSI GS NFV-TST 009, which RFC 9004 section 6.2 recommends)."
            )
        return (*deviations, *settings.throughput.deviations())

    def evaluate(self, series: TrialSeries) -> Outcome:
        """Search for the longest burst, several times."""
        settings, max_fps = self.settings, series.context.max_fps
        throughput_fps = throughput_of(series, settings.throughput)
        longest = float(max(1, int(max_fps * settings.max_burst_s)))
        found = [self._search(series, longest) for _ in range(settings.repeats)]
        bursts = [bracket.passed for bracket in found if bracket.passed is not None]
        if not bursts:
            refusal = found[-1].refusal
            if refusal is not None and not refusal.counts:
                raise NoFigureError(MeasurementStatus.INVALID, f"the generator could not send even one frame: {'; '.join(refusal.reasons)}")
            raise NoFigureError(MeasurementStatus.INCONCLUSIVE, "the device loses even single frames")
        reasons = _reasons(found, longest)
        if len(bursts) < len(found):
            reasons.append(f"{len(found) - len(bursts)} of {len(found)} searches found no burst without loss")
        status = MeasurementStatus.LOWER_BOUND if reasons else MeasurementStatus.OK
        if len(bursts) < len(found):
            status = MeasurementStatus.INCONCLUSIVE
        mean_frames = fmean(bursts)
        implied_s = mean_frames / max_fps
        # RFC 9004: while the burst arrives, the device drains its buffer at the throughput.
        corrected_s = implied_s * (1 - min(throughput_fps, max_fps) / max_fps)
        return Outcome(
            status=status,
            reasons=tuple(reasons),
            headline="back_to_back_frames",
            metrics={
                "back_to_back_frames": Metric(value=mean_frames, unit="frames", better=Better.HIGHER),
                "back_to_back_min_frames": Metric(value=min(bursts), unit="frames"),
                "back_to_back_max_frames": Metric(value=max(bursts), unit="frames"),
                "back_to_back_deviation_frames": Metric(value=stdev(bursts) if len(bursts) > 1 else 0.0, unit="frames"),
                "implied_buffer_s": Metric(value=implied_s, unit="s"),
                "corrected_buffer_s": Metric(value=corrected_s, unit="s", better=Better.HIGHER),
                "throughput_fps": Metric(value=throughput_fps, unit="frames/s", better=Better.HIGHER),
            }
            | series.counters(),
        )

    def _search(self, series: TrialSeries, longest: float) -> Bracket:
        settings, max_fps = self.settings, series.context.max_fps
        return search_greatest(
            lambda frames: series.run(
                max_fps,
                frames / max_fps,
                "back-to-back",
                loss_repeats=settings.loss_repeats,
                burst_frames=int(frames),
                may_be_silent=frames < 100,
            ),
            SearchGrid(minimum=1.0, maximum=longest, resolution=settings.resolution, step=1.0),
            longest,
        )


def _reasons(found: list[Bracket], longest: float) -> list[str]:
    """Return why the device may buffer more than the searches found."""
    reasons = []
    if any(bracket.refused is None for bracket in found):
        reasons.append(f"the longest bursts, of {longest:.0f} frames, pass: the result is not the limit of the buffer")
    not_carried = [b for b in found if b.passed is not None and b.refusal is not None and not b.refusal.counts]
    if not_carried and (refusal := not_carried[0].refusal) is not None:
        reasons.append(f"the generator cannot send a burst of {not_carried[0].refused:.0f} frames: {'; '.join(refusal.reasons)}")
    return reasons
