"""RFC 2889 section 5.8: the greatest rate of new addresses at which a learning switch learns all of them."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from ringroad_lab.method.address_teaching import NO_AGEING, NO_THIRD_PORT, UNKNOWN_STATIONS, AddressTeacher
from ringroad_lab.method.judgement import JudgedTrial, Judgement
from ringroad_lab.method.search import SearchGrid, search_greatest
from ringroad_lab.method.trial_series import NoFigureError, TrialMethod, TrialSeries, TrialSettings
from ringroad_lab.record import Better, MeasurementStatus, Metric, Outcome
from ringroad_lab.trial import FramesPerSecond

# First station beyond those of the caching test, which the device may still know.
_FIRST_STATION = 2_000_000


class LearningRateSettings(TrialSettings):
    """Settings of the learning-rate method."""

    stations: Annotated[int, Field(ge=2, le=100_000)] = 256
    """Number of addresses in each attempt, new addresses each time. RFC 2889: not more than the device can store."""
    minimum_fps: Annotated[FramesPerSecond, Field(gt=0)] = 100.0
    """Lowest rate, frames/s."""
    ask_fps: Annotated[FramesPerSecond, Field(gt=0)] = 10_000.0
    """Rate of the frames that query these addresses, frames/s."""
    resolution: Annotated[float, Field(ge=0.001, le=0.5)] = 0.05
    """Maximum distance between the greatest rate that passes and the least that fails, as part of the latter."""
    loss_repeats: Annotated[int, Field(ge=0, le=20)] = 1
    """Number of times that a failed attempt is repeated before it counts: a lost frame teaches nothing."""


class LearningRateMethod(TrialMethod):
    """RFC 2889 address learning rate."""

    title = "Address learning rate (RFC 2889 section 5.8)"
    settings_type = LearningRateSettings
    settings: LearningRateSettings

    def expected_s(self, trial_overhead_s: float) -> float:
        """See [`Method.expected_s`]."""
        settings = self.settings
        probes = math.log2(1 / settings.resolution) + 4
        return probes * (3.5 * trial_overhead_s + settings.stations / settings.ask_fps)

    def deviations(self) -> tuple[str, ...]:
        """See [`Method.deviations`]."""
        return (NO_THIRD_PORT, NO_AGEING)

    def evaluate(self, series: TrialSeries) -> Outcome:
        """Search for the greatest rate at which the device learns every new address."""
        settings, max_fps = self.settings, series.context.max_fps
        teacher = AddressTeacher(series, min(settings.ask_fps, max_fps))
        known = _FIRST_STATION + UNKNOWN_STATIONS
        teacher.check(unknown_station=_FIRST_STATION, known_station=known)
        following = known + 1

        def attempt(rate_fps: float) -> JudgedTrial:
            nonlocal following
            for _ in range(1 + settings.loss_repeats):
                judged = teacher.teach_and_ask(following, settings.stations, rate_fps)
                following += settings.stations
                if judged.judgement is not Judgement.FAIL:
                    break
            return judged

        # Generators use whole frames per second.
        grid = SearchGrid(
            minimum=float(math.ceil(min(settings.minimum_fps, int(max_fps)))),
            maximum=float(int(max_fps)),
            resolution=settings.resolution,
            step=1.0,
        )
        found = search_greatest(attempt, grid, grid.maximum)
        series.check_alive()
        if found.passed is None:
            if found.refusal is not None and not found.refusal.counts:
                why = "; ".join(found.refusal.reasons)
                raise NoFigureError(MeasurementStatus.INVALID, f"the generator could not carry {grid.minimum:.0f} frames/s: {why}")
            raise NoFigureError(
                MeasurementStatus.INCONCLUSIVE,
                f"the device did not learn all of {settings.stations} new addresses at {grid.minimum:.0f} addresses/s: "
                "its table may be full or too small; try fewer stations, or restart the device",
            )
        reasons: tuple[str, ...] = ()
        if found.refused is None:
            reasons = (f"the device learns {settings.stations} addresses at the greatest rate, {max_fps:.0f} frames/s",)
        elif found.refusal is not None and not found.refusal.counts:
            reasons = (f"the generator could not carry {found.refused:.0f} frames/s: {'; '.join(found.refusal.reasons)}",)
        return Outcome(
            status=MeasurementStatus.LOWER_BOUND if reasons else MeasurementStatus.OK,
            reasons=reasons,
            headline="address_learning_fps",
            metrics={"address_learning_fps": Metric(value=found.passed, unit="frames/s", better=Better.HIGHER)},
        )
