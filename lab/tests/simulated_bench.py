"""What tests of methods measure with: simulated devices, and generators that misbehave."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings

from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.generator.interface import Generator
from ringroad_lab.generator.simulated import SimulatedDut, SimulatedGenerator
from ringroad_lab.method.interface import MethodContext
from ringroad_lab.trial import TrialRequest, TrialResult

MAX_FPS = 1_000_000.0

PATIENT = settings(deadline=None, database=None)
"""Of properties: a busy machine takes its time over an example, and none is kept in a folder."""


class Bench:
    """What a method measures with, and the trials that it ran."""

    def __init__(
        self,
        generator: Generator,
        *,
        max_fps: float = MAX_FPS,
        is_max_generator_bound: bool = False,
        bidirectional: bool = True,
        throughput_fps: float | None = None,
    ) -> None:
        """Lay the bench out around a generator."""
        self.trials: list[TrialResult] = []
        self.context = MethodContext(
            generator=generator,
            frame=parse_frame_mix("64"),
            max_fps=max_fps,
            is_max_generator_bound=is_max_generator_bound,
            bidirectional=bidirectional,
            flows=1,
            on_trial=self.trials.append,
            remaining_s=lambda _: None,
            throughput_fps=throughput_fps,
        )

    def rates(self, purpose: str) -> list[float]:
        """Return the offered loads of the trials for that purpose, frames/s."""
        return [trial.request.load.rate_fps for trial in self.trials if trial.request.purpose == purpose]


class Scripted(Generator):
    """A simulated generator whose results are changed on the way, by number, from 0."""

    def __init__(self, dut: SimulatedDut, change: Callable[[int, TrialResult], TrialResult], seed: int = 0) -> None:
        """Take what changes them."""
        self._inner = SimulatedGenerator(dut, seed=seed)
        self._change = change
        self._number = 0

    def trial(self, request: TrialRequest) -> TrialResult:
        """Run a trial and change its result."""
        result = self._change(self._number, self._inner.trial(request))
        self._number += 1
        return result

    def version(self) -> str:
        """Say what it is."""
        return "scripted"
