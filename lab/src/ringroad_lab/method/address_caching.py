"""RFC 2889 section 5.7: how many addresses a learning switch knows at once."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from ringroad_lab.method.address_teaching import NO_AGEING, NO_THIRD_PORT, AddressTeacher
from ringroad_lab.method.judge import JudgedTrial, Judgement
from ringroad_lab.method.search import Grid, search_greatest
from ringroad_lab.method.trial_series import NoFigureError, TrialMethod, TrialSeries, TrialSettings
from ringroad_lab.record import Better, MeasurementStatus, Metric, Outcome
from ringroad_lab.trial import FramesPerSecond


class AddressCachingSettings(TrialSettings):
    """Of the address caching capacity."""

    max_stations: Annotated[int, Field(ge=2, le=1_000_000)] = 16_384
    """The most that are tried. Open vSwitch 3.1 knows 2048 by default, VALE 1024."""
    teach_fps: Annotated[FramesPerSecond, Field(gt=0)] = 10_000.0
    """Rate at which stations are taught and asked for, frames/s. RFC 2889: one at which the device loses none."""
    loss_repeats: Annotated[int, Field(ge=0, le=20)] = 1
    """How often an attempt that fails is repeated before it counts: a frame that is lost on its way teaches nothing."""


class AddressCachingMethod(TrialMethod):
    """RFC 2889 address caching capacity."""

    name = "address-caching"
    title = "Address caching capacity (RFC 2889 section 5.7)"
    settings_type = AddressCachingSettings
    settings: AddressCachingSettings

    def expected_s(self, trial_overhead_s: float) -> float:
        """See [`Method.expected_s`]."""
        settings = self.settings
        probes = math.log2(settings.max_stations) + 2
        # The first asks for all, the next for half of them, and so on.
        # Attempts are a teaching and two askings, or twice a teaching and an asking.
        return 3.5 * (probes * trial_overhead_s + 2 * settings.max_stations / settings.teach_fps)

    def deviations(self) -> tuple[str, ...]:
        """See [`Method.deviations`]."""
        return (NO_THIRD_PORT, NO_AGEING)

    def evaluate(self, series: TrialSeries) -> Outcome:
        """Search for the greatest number of stations that the device knows all of."""
        settings = self.settings
        teach_fps = min(settings.teach_fps, series.context.max_fps)
        teacher = AddressTeacher(series, teach_fps)
        # A table that refuses new addresses keeps the one of the check: it is one of the search's.
        teacher.check(unknown_station=settings.max_stations, known_station=0)

        def attempt(stations: float) -> JudgedTrial:
            for _ in range(1 + settings.loss_repeats):
                judged = teacher.teach_and_ask(0, int(stations), teach_fps)
                if judged.judgement is not Judgement.FAIL:
                    break
            return judged

        found = search_greatest(
            attempt,
            Grid(minimum=1.0, maximum=float(settings.max_stations), step=1.0),
            float(settings.max_stations),
        )
        # A device that died would seem to know every station.
        series.check_alive()
        if found.passed is None:
            raise NoFigureError(MeasurementStatus.INCONCLUSIVE, "the device did not learn one address, though it did before")
        reasons: tuple[str, ...] = ()
        if found.refused is None:
            reasons = (f"it knows all {settings.max_stations} stations; raise max_stations to look further",)
        elif found.refusal is not None and not found.refusal.counts:
            reasons = (f"the generator could not send {found.refused:.0f} frames: {'; '.join(found.refusal.reasons)}",)
        return Outcome(
            status=MeasurementStatus.LOWER_BOUND if reasons else MeasurementStatus.OK,
            reasons=reasons,
            headline="address_cache_addresses",
            metrics={"address_cache_addresses": Metric(value=found.passed, unit="addresses", better=Better.HIGHER)},
        )
