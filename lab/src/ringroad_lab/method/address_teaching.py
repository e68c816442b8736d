"""Teaches addresses to a learning switch and tests which it knows, with two ports: shared by RFC 2889's address tests.

The RFC watches a third port for floods. With two ports, the test sends frames to stations behind the port that the frames come from.
A switch that knows the station filters the frames. A switch that does not know the station floods them, and they arrive.
"""

from __future__ import annotations

from collections.abc import Callable

from ringroad_lab.method.judgement import JudgedTrial, Judgement
from ringroad_lab.method.trial_series import NoFigureError, TrialSeries
from ringroad_lab.record import MeasurementStatus
from ringroad_lab.trial import AddressPlan

NO_THIRD_PORT = (
    "Floods are detected at the second port, by frames to stations on the sending side, not at a third port (RFC 2889 sections 5.7, 5.8)."
)
# Several, because a lost frame looks like a frame that is not forwarded.
UNKNOWN_STATIONS = 16
_CHECKS = 3
NO_AGEING = "The method does not wait for addresses to age between trials (RFC 2889 sections 5.7, 5.8)."


class AddressTeacher:
    """Teaches the device stations behind the first port, and queries which it knows."""

    def __init__(self, series: TrialSeries, ask_fps: float) -> None:
        """Take the rate of the query frames, frames/s."""
        self._series = series
        self._ask_fps = ask_fps

    def teach_and_ask(self, first_station: int, stations: int, teach_fps: float) -> JudgedTrial:
        """Teach at a rate; return the query trial, which passes if the device knows every station.

        A query that passes is repeated, because a frame that was flooded and then lost looks like a frame that was not flooded.
        """
        teaching = self._burst(AddressPlan.SOURCES, first_station, stations, teach_fps, "teach")
        if not teaching.counts:
            return teaching
        query = self._query(first_station, stations)
        return self._query(first_station, stations) if query.passes else query

    def check(self, unknown_station: int, known_station: int) -> None:
        """Check that the device forwards, floods frames to stations that it does not know, and learns.

        Args:
            unknown_station: First of the [`UNKNOWN_STATIONS`] stations that the device is never taught.
            known_station: A station that the device is taught.

        Raises:
            NoFigureError: the device does not, so its addresses cannot be tested.
        """
        self._series.check_alive()
        if self._always(Judgement.PASS, lambda: self._query(unknown_station, UNKNOWN_STATIONS)):
            raise NoFigureError(
                MeasurementStatus.INCONCLUSIVE,
                "the device does not flood frames to an unknown station: two ports cannot show which addresses it knows",
            )
        if self._always(Judgement.FAIL, lambda: self.teach_and_ask(known_station, 1, self._ask_fps)):
            raise NoFigureError(
                MeasurementStatus.INCONCLUSIVE, "the device learns no addresses: it forwards frames to a station it has just seen"
            )

    def _always(self, judgement: Judgement, attempt: Callable[[], JudgedTrial]) -> bool:
        """Return whether several attempts all have this judgement; stop at the first that does not."""
        for _ in range(_CHECKS):
            judged = attempt()
            if not judged.counts:
                raise NoFigureError(MeasurementStatus.INVALID, f"the generator could not send a frame: {'; '.join(judged.reasons)}")
            if judged.judgement is not judgement:
                return False
        return True

    def _query(self, first_station: int, stations: int) -> JudgedTrial:
        """Send a frame to each station; the trial passes if no frame arrives."""
        judged = self._burst(AddressPlan.RETURNED, first_station, stations, self._ask_fps, "ask")
        if not judged.counts:
            return judged
        arrived = sum(direction.received_frames for direction in judged.result.directions)
        return JudgedTrial(judged.result, Judgement.FAIL if arrived else Judgement.PASS)

    def _burst(self, plan: AddressPlan, first_station: int, stations: int, rate_fps: float, purpose: str) -> JudgedTrial:
        return self._series.run(
            rate_fps,
            stations / rate_fps,
            purpose,
            acceptable_loss_ratio=1.0,
            may_be_silent=True,
            loss_alone_counts=False,
            may_repeat=False,
            burst_frames=stations,
            bidirectional=False,
            flows=1,
            addresses=plan,
            stations=stations,
            first_station=first_station,
            # Learning frames of the far end are useless here, and would occupy a place in the table.
            learning=False,
        )
