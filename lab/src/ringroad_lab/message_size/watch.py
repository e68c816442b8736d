"""Records what others did during each part of a sweep, and repeats disturbed parts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ringroad_lab.facts.witness import Witness
from ringroad_lab.method.interface import DisturbedRepeats
from ringroad_lab.method.trial_series import MOST_REPEATS
from ringroad_lab.record import SweepPart
from ringroad_lab.trial import Disturbance

T = TypeVar("T")


class SweepWatch:
    """Watches the parts of one sweep: a message size of sockperf, or all of NetPIPE."""

    def __init__(self, witness: Witness, repeats: DisturbedRepeats) -> None:
        """Take the witness, and the budget for repetitions."""
        self._witness = witness
        self._repeats = repeats
        self.parts: list[SweepPart] = []
        """The parts so far, with their repetitions."""

    def over(self, name: str, work: Callable[[], T]) -> T:
        """Run a part; repeat it at once if it was disturbed, within the budget. Return the result of the least disturbed run."""
        kept, seen, took_s = self._watched(work)
        for _ in range(MOST_REPEATS):
            if not seen.is_above_limit or not self._repeats.take(took_s):
                break
            again, seen_again, took_s = self._watched(work)
            left_out = seen_again
            if not seen_again.is_above_limit or seen_again.ratio < seen.ratio:
                kept, seen, left_out = again, seen_again, seen
            self._add(name, left_out, is_repeated=True)
        self._add(name, seen)
        return kept

    def _watched(self, work: Callable[[], T]) -> tuple[T, Disturbance, float]:
        before, began_s = self._witness.look(), time.monotonic()
        result = work()
        return result, self._witness.since(before), time.monotonic() - began_s

    def _add(self, name: str, seen: Disturbance, *, is_repeated: bool = False) -> None:
        self.parts.append(SweepPart(name=name, disturbance=seen, is_disturbed=seen.is_above_limit, is_repeated=is_repeated))
