"""Teaching a learning switch addresses and testing which it knows, with two ports: shared by RFC 2889's address tests.

The RFC watches a third port for floods. With two, the question is put the other way round: frames to stations behind the port that they
come from. A switch that knows the station forwards none of them; to one that it does not know it floods them, and they arrive.
"""

from __future__ import annotations

from collections.abc import Callable

from ringroad_lab.method.judge import JudgedTrial, Judgement
from ringroad_lab.method.trial_series import NoFigureError, TrialSeries
from ringroad_lab.record import MeasurementStatus
from ringroad_lab.trial import AddressPlan

NO_THIRD_PORT = (
    "Floods are seen at the second port, by frames that return to their own side, not at a third port (RFC 2889 sections 5.7, 5.8)."
)
# One frame may be lost, which looks like a frame that is not forwarded: it takes several.
UNKNOWN_STATIONS = 16
_CHECKS = 3
NO_AGEING = "There is no wait for addresses to age between trials (RFC 2889 sections 5.7, 5.8)."


class AddressTeacher:
    """Teaches the device stations behind the first port, and asks it for them."""

    def __init__(self, series: TrialSeries, ask_fps: float) -> None:
        """Take the rate of the frames that ask, frames/s."""
        self._series = series
        self._ask_fps = ask_fps

    def teach_and_ask(self, first_station: int, stations: int, teach_fps: float) -> JudgedTrial:
        """Teach at a rate; return the trial that asks: it passes where the device knows every station.

        It is asked twice, since a frame that was flooded and then lost looks like one that was not flooded.
        """
        taught = self._burst(AddressPlan.SOURCES, first_station, stations, teach_fps, "teach")
        if not taught.counts:
            return taught
        asked = self._ask(first_station, stations)
        return self._ask(first_station, stations) if asked.passes else asked

    def check(self, unknown_station: int, known_station: int) -> None:
        """Check that the device forwards, floods frames to stations that it does not know, and learns.

        Args:
            unknown_station: First of [`UNKNOWN_STATIONS`] that the device is never taught.
            known_station: One that it is taught.

        Raises:
            NoFigureError: it does not, so that nothing can be told of its addresses.
        """
        self._series.check_alive()
        if self._always(Judgement.PASS, lambda: self._ask(unknown_station, UNKNOWN_STATIONS)):
            raise NoFigureError(
                MeasurementStatus.INCONCLUSIVE,
                "the device does not flood frames to an unknown station: what it knows cannot be told with two ports",
            )
        if self._always(Judgement.FAIL, lambda: self.teach_and_ask(known_station, 1, self._ask_fps)):
            raise NoFigureError(
                MeasurementStatus.INCONCLUSIVE, "the device learns no addresses: it forwards frames to a station it has just seen"
            )

    def _always(self, judgement: Judgement, attempt: Callable[[], JudgedTrial]) -> bool:
        """Whether some attempts all come to the same; they end with the first that does not."""
        for _ in range(_CHECKS):
            judged = attempt()
            if not judged.counts:
                raise NoFigureError(MeasurementStatus.INVALID, f"the generator could not send a frame: {'; '.join(judged.reasons)}")
            if judged.judgement is not judgement:
                return False
        return True

    def _ask(self, first_station: int, stations: int) -> JudgedTrial:
        """Send a frame to each; it passes where none arrives."""
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
            # The far end's own frames are of no use here, and would take a place in the table.
            learning=False,
        )
