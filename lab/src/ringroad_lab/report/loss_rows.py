"""Places where the frames of a run were lost, by device, method and frame size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ringroad_lab.frame_size import FrameMix
from ringroad_lab.grouping import grouped
from ringroad_lab.loss import loss_parts
from ringroad_lab.record import Measurement, RunRecord
from ringroad_lab.report.quantity import count
from ringroad_lab.trial import LOSS_PLACES, LossByPlace, sum_losses

PLACE_HEADS = {
    "refused": "Refused",
    "before_device": "Before the device",
    "in_device": "In the device",
    "in_guests": "In the guests",
    "behind_device": "Behind the device",
    "at_receiver": "At the receive side",
    "unexplained": "Unexplained",
}


@dataclass(frozen=True)
class LossRow:
    """The loss in all trials of one device, method and frame mix."""

    topology: str
    method: str
    dut: str
    frame: FrameMix
    loss: LossByPlace

    @property
    def cells(self) -> list[str]:
        """The total of lost frames, the loss at each place and the device's loss, for people."""
        return [count(self.loss.frames), *map(place_text, places(self.loss)), count(self.loss.of_device)]


def places(loss: LossByPlace) -> list[int | None]:
    """Return the frames lost at each place, in the order of the path."""
    return [getattr(loss, place) for place in LOSS_PLACES]


def place_text(frames: int | None) -> str:
    """Return a count of frames, for people; `unknown` without a counter."""
    return "unknown" if frames is None else count(frames)


def measurement_loss(measurements: Iterable[Measurement]) -> LossByPlace | None:
    """Sum the loss of all valid trials except warm-ups; None if no trial recorded it."""
    trials = [trial for m in measurements for trial in m.trials if trial.is_valid and trial.request.purpose != "warm-up"]
    return sum_losses([loss for trial in trials if (loss := trial.loss) is not None])


def loss_rows(record: RunRecord) -> list[LossRow]:
    """Return a row for each device, method and frame mix with loss."""
    groups = grouped(record.measurements, lambda m: (m.topology, m.method, m.dut, m.frame))
    found = ((key, measurement_loss(same)) for key, same in groups.items())
    return [LossRow(*key, loss) for key, loss in found if loss is not None and loss.frames]


def loss_sentences(rows: Sequence[LossRow]) -> list[str]:
    """Return a sentence for each device that states where its frames were lost, over all frame mixes."""
    by_dut = grouped(rows, lambda row: row.dut).items()
    return [f"{dut}: {_sentence(loss)}" for dut, same in by_dut if (loss := sum_losses([row.loss for row in same])) is not None]


def _sentence(loss: LossByPlace) -> str:
    parts = ", ".join(f"{_percent(frames, loss.frames)} {part}" for frames, part in loss_parts(loss))
    own = {0: "none of them counts", loss.frames: "all of them count"}.get(loss.of_device, f"{_percent(loss.of_device, loss.frames)} count")
    return f"of {count(loss.frames)} frames lost in all trials, {parts}; {own} as the device's loss."


def _percent(frames: int, of: int) -> str:
    percent = 100 * frames / of
    if frames == of:
        return "all"
    # Rounding must not turn a few into none, or nearly all into all.
    return "under 0.1 %" if percent < 0.1 else "over 99.9 %" if percent > 99.9 else f"{percent:.1f} %"
