"""RFC 2889 section 5.7: how many addresses a learning switch stores at once."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from ringroad_lab.method.address_teaching import NO_AGEING, NO_THIRD_PORT, AddressTeacher
from ringroad_lab.method.judgement import JudgedTrial, Judgement
from ringroad_lab.method.search import SearchGrid, search_greatest
from ringroad_lab.method.trial_series import NoFigureError, TrialMethod, TrialSeries, TrialSettings
from ringroad_lab.record import Better, MeasurementStatus, Metric, Outcome
from ringroad_lab.trial import FramesPerSecond


class AddressCachingSettings(TrialSettings):
    """Settings of the address-caching method."""

    max_stations: Annotated[int, Field(ge=2, le=1_000_000)] = 16_384
    """Largest number of stations tried. Open vSwitch 3.1 stores 2048 addresses by default, VALE 1024."""
    teach_fps: Annotated[FramesPerSecond, Field(gt=0)] = 10_000.0
    """Rate of the frames that teach stations and query them, frames/s. RFC 2889: a rate at which the device loses no frame."""
    loss_repeats: Annotated[int, Field(ge=0, le=20)] = 1
    """Number of times that a failed attempt is repeated before it counts: a lost frame teaches nothing."""


class AddressCachingMethod(TrialMethod):
    """RFC 2889 address caching capacity."""

    title = "Address caching capacity (RFC 2889 section 5.7)"
    settings_type = AddressCachingSettings
    settings: AddressCachingSettings

    def expected_s(self, trial_overhead_s: float) -> float:
        """See [`Method.expected_s`]."""
        settings = self.settings
        probes = math.log2(settings.max_stations) + 2
        # The first attempt queries all stations, the next half of them, and so on.
        # An attempt that passes teaches once and queries twice. An attempt that fails is repeated: each teaches once and queries once.
        return 3.5 * (probes * trial_overhead_s + 2 * settings.max_stations / settings.teach_fps)

    def deviations(self) -> tuple[str, ...]:
        """See [`Method.deviations`]."""
        return (NO_THIRD_PORT, NO_AGEING)

    def evaluate(self, series: TrialSeries) -> Outcome:
        """Search for the greatest number of stations of which the device stores all."""
        settings = self.settings
        teach_fps = min(settings.teach_fps, series.context.max_fps)
        teacher = AddressTeacher(series, teach_fps)
        # A table that rejects new addresses keeps the address of the check, which is also an address of the search.
        teacher.check(unknown_station=settings.max_stations, known_station=0)

        def attempt(stations: float) -> JudgedTrial:
            for _ in range(1 + settings.loss_repeats):
                judged = teacher.teach_and_ask(0, int(stations), teach_fps)
                if judged.judgement is not Judgement.FAIL:
                    break
            return judged

        found = search_greatest(
            attempt,
            SearchGrid(minimum=1.0, maximum=float(settings.max_stations), step=1.0),
            float(settings.max_stations),
        )
        # A dead device would appear to know every station.
        series.check_alive()
        if found.passed is None:
            raise NoFigureError(MeasurementStatus.INCONCLUSIVE, "the device learned no address, although it did before")
        reasons: tuple[str, ...] = ()
        if found.refused is None:
            reasons = (f"the device knows all {settings.max_stations} stations; raise max_stations to test more",)
        elif found.refusal is not None and not found.refusal.counts:
            reasons = (f"the generator could not send {found.refused:.0f} frames: {'; '.join(found.refusal.reasons)}",)
        return Outcome(
            status=MeasurementStatus.LOWER_BOUND if reasons else MeasurementStatus.OK,
            reasons=reasons,
            headline="address_cache_addresses",
            metrics={"address_cache_addresses": Metric(value=found.passed, unit="addresses", better=Better.HIGHER)},
        )
