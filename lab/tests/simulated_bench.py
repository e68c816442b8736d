"""Test bench for methods: simulated devices, and generators that misbehave."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ringroad_lab.cost import Cost, CostMeter
from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.generator.interface import Generator
from ringroad_lab.generator.offered_load import CheckedGenerator
from ringroad_lab.method.interface import MethodContext
from ringroad_lab.trial import FlowSet, TrialRequest, TrialResult
from simulated_generator import SimulatedDut, SimulatedGenerator

MAX_FPS = 1_000_000.0

T = TypeVar("T")


class SimulatedCosts(CostMeter):
    """The cost meter of a simulated device: a fixed cost per frame, or a whole processor if the device polls."""

    def __init__(self, *, run_ns: float | None = 100.0, polls: bool = False, kernel_ns: float = 40.0, cycles: float | None = 250.0) -> None:
        """Set the cost of a frame; None: the device has no process, or its machine no cycle counter."""
        self._run_ns = run_ns
        self._polls = polls
        self._kernel_ns = kernel_ns
        self._cycles = cycles

    def over(self, work: Callable[[], T]) -> tuple[T, Cost]:
        """Return the cost of a trial that lasted one second longer than its sending time."""
        result = work()
        assert isinstance(result, TrialResult)
        frames = sum(way.received_frames for way in result.directions)
        return result, self._cost(1.0 + max(way.transmit_s for way in result.directions), frames)

    def idle(self, duration_s: float) -> Cost:
        """Return the cost without frames."""
        return self._cost(duration_s, 0)

    def _cost(self, elapsed_s: float, frames: int) -> Cost:
        run_s = None if self._run_ns is None else elapsed_s if self._polls else frames * self._run_ns / 1e9
        return Cost(
            elapsed_s=elapsed_s,
            run_s=run_s,
            wait_s=run_s,
            # Besides the frames, the kernel works for other programs.
            kernel_s=frames * self._kernel_ns / 1e9 + 0.05 * elapsed_s,
            busy_s=None if self._run_ns is None else frames * self._run_ns / 2e9,
            cycles=None if self._cycles is None else elapsed_s * 2e9 if self._polls else frames * self._cycles,
            memory_bytes=None if self._run_ns is None else 4096,
        )


class Bench:
    """Context of a method, and the trials that the method ran."""

    def __init__(
        self,
        generator: Generator,
        *,
        max_fps: float = MAX_FPS,
        is_max_generator_bound: bool = False,
        bidirectional: bool = True,
        throughput_fps: float | None = None,
        costs: CostMeter | None = None,
        loading_s: float | None = 1.0,
    ) -> None:
        """Set up the bench around a generator. `loading_s` is the time to fill the device's flow table; None: no flow table."""
        self.trials: list[TrialResult] = []
        self.installed: list[FlowSet | None] = []
        """Flow sets that were loaded into the table; None: the default flows."""

        def install_flows(flow_set: FlowSet | None) -> float:
            self.installed.append(flow_set)
            return loading_s or 0.0

        self.context = MethodContext(
            generator=CheckedGenerator(generator),
            frame=parse_frame_mix("64"),
            max_fps=max_fps,
            is_max_generator_bound=is_max_generator_bound,
            bidirectional=bidirectional,
            flows=1,
            on_trial=self.trials.append,
            remaining_s=lambda _: None,
            throughput_fps=throughput_fps,
            costs=costs or SimulatedCosts(),
            install_flows=install_flows if loading_s is not None else None,
        )

    def rates(self, purpose: str) -> list[float]:
        """Return the offered loads of the trials with a purpose, frames/s."""
        return [trial.request.load.rate_fps for trial in self.trials if trial.request.purpose == purpose]


class Scripted(Generator):
    """A simulated generator whose results are modified by a function of the trial's number, from 0."""

    def __init__(self, dut: SimulatedDut, change: Callable[[int, TrialResult], TrialResult], seed: int = 0) -> None:
        """Set the device and the function that modifies results."""
        self._inner = SimulatedGenerator(dut, seed=seed)
        self._change = change
        self._number = 0

    def trial(self, request: TrialRequest) -> TrialResult:
        """Run a trial and modify its result."""
        result = self._change(self._number, self._inner.trial(request))
        self._number += 1
        return result

    def version(self) -> str:
        """Return a fixed name."""
        return "scripted"
