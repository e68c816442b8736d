"""A generator whose trials report where frames were lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ringroad_lab.errors import LabError
from ringroad_lab.generator.interface import Generator, WrappedGenerator
from ringroad_lab.loss import FramePath, HopCounters, book
from ringroad_lab.trial import TrialRequest, TrialResult


class BookedGenerator(WrappedGenerator):
    """Reads the counters of all hops before and after each trial."""

    def __init__(self, generator: Generator, ways: Mapping[str, FramePath], count: Callable[[], HopCounters]) -> None:
        """Take the generator, the paths of its frames by sending port, and the function that reads the counters."""
        super().__init__(generator)
        self._ways = ways
        self._count = count

    def trial(self, request: TrialRequest) -> TrialResult:
        """Offer a load, and book the lost frames."""
        before = self._read()
        result = self._generator.trial(request)
        counted = self._read().since(before)
        ways = [way.model_copy(update={"loss": book(way, self._ways[way.sender], counted)}) for way in result.directions]
        return result.model_copy(update={"directions": tuple(ways), "drop_counters": dict(counted.drops)})

    def _read(self) -> HopCounters:
        try:
            return self._count()
        except LabError:
            # Counters that cannot be read are unknown. Other checks find out whether the hop is still alive.
            return HopCounters()
