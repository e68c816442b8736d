"""A simulated device under test behind the generator's interface. Methods are tested against it, as all its properties are known.

Nothing is sent, and the clock is virtual. The same seed always gives the same trials.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import numpy as np
from pydantic import Field

from ringroad_lab.generator.interface import Generator
from ringroad_lab.trial import (
    AddressPlan,
    Count,
    DirectionCounts,
    FramesPerSecond,
    Frozen,
    LatencySummary,
    Load,
    Seconds,
    TrialRequest,
    TrialResult,
    TrialVerdict,
)

Ratio = Annotated[float, Field(ge=0, le=1)]

# Latency of percentile p relative to the mean: 1 - ln(1 - p), scaled, as of an exponential tail.
_PERCENTILES = {"50": 0.5, "90": 0.9, "99": 0.99, "99.9": 0.999}


class FullTable(StrEnum):
    """Behaviour of a learning device for a new address if its table is full."""

    REFUSES = "refuses"
    FORGETS_OLDEST = "forgets oldest"


class SimulatedDut(Frozen):
    """Properties of the simulated device. The directions are independent."""

    capacity_fps: FramesPerSecond
    """Frames/s that it forwards in each direction, for any frame size."""
    capacity_deviation: Ratio = 0.0
    """Standard deviation of the capacity between trials, relative to the capacity."""
    softness: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Loss begins gradually at `capacity_fps * (1 - softness)`; 0: abruptly at the capacity."""
    random_loss_ratio: Ratio = 0.0
    """Fraction of frames lost at any load."""
    bad_trial_ratio: Ratio = 0.0
    """Fraction of disturbed trials."""
    bad_trial_loss_ratio: Ratio = 0.3
    """Loss in disturbed trials."""
    buffer_frames: Count = 0
    """Size of the buffer for frames that arrive faster than the capacity (RFC 9004)."""
    latency_ns: Annotated[float, Field(gt=0)] = 5_000.0
    """Mean latency without load."""
    duplicate_ratio: Ratio = 0.0
    """Fraction of frames forwarded twice."""
    recovery_s: Seconds = 0.0
    """Time without forwarding after a load with loss."""
    table_size: Count | None = None
    """Capacity of the address table; None: it forwards from port to port without learning."""
    full_table: FullTable = FullTable.REFUSES
    learning_fps: FramesPerSecond = 1e12
    """New addresses per second that it can learn."""
    dies_at_trial: Count | None = None
    """Number of the first trial, from 0, in which it forwards nothing."""


class SimulatedGenerator(Generator):
    """Offers simulated loads to a [`SimulatedDut`], in virtual time."""

    def __init__(
        self,
        dut: SimulatedDut,
        *,
        seed: int = 0,
        ceiling_fps: float | None = None,
        is_stubborn: bool = False,
        tells_percentiles: bool = True,
        overhead_s: float = 1.0,
    ) -> None:
        """Set its properties.

        Args:
            dut: The simulated device.
            seed: Seed of all random numbers.
            ceiling_fps: Maximum rate per direction, frames/s; None: unlimited.
            is_stubborn: Above the ceiling it sends every frame but takes longer, and reports the trial as valid: the caller must check
                the time. Otherwise it sends less, and reports the trial as invalid.
            tells_percentiles: Whether its latency has percentiles.
            overhead_s: Virtual time that a trial takes in addition to its duration.
        """
        self.dut = dut
        self.now_s = 0.0
        self.trials = 0
        self._random = np.random.default_rng(seed)
        self._ceiling_fps = ceiling_fps
        self._is_stubborn = is_stubborn
        self._tells_percentiles = tells_percentiles
        self._overhead_s = overhead_s
        self._back_at_s = 0.0
        # Stations that the device knows behind its first port, oldest first.
        self._table: dict[int, None] = {}

    def version(self) -> str:
        """Return a fixed name."""
        return "simulated"

    def trial(self, request: TrialRequest) -> TrialResult:
        """Simulate the result of the load."""
        load = request.load
        started_at = self.now_s
        intended = load.burst_frames if load.burst_frames is not None else round(load.rate_fps * request.duration_s)
        sent, transmit_s, reasons = self._send(load, intended)
        is_dead = self.dut.dies_at_trial is not None and self.trials >= self.dut.dies_at_trial
        is_bad = bool(self._random.random() < self.dut.bad_trial_ratio)
        directions = []
        names = [("a", "b"), ("b", "a")] if load.bidirectional else [("a", "b")]
        for sender, receiver in names:
            received = 0 if is_dead else self._forward(load, sent, transmit_s, is_bad)
            duplicates = int(received * self.dut.duplicate_ratio)
            directions.append(
                DirectionCounts(
                    sender=sender,
                    receiver=receiver,
                    intended_frames=intended,
                    sent_frames=sent,
                    received_frames=received,
                    duplicate_frames=duplicates,
                    transmit_s=transmit_s,
                    latency=self._latency(sent / transmit_s if transmit_s else 0.0, received),
                )
            )
        self.trials += 1
        ended_at = started_at + transmit_s
        if (
            any(d.received_frames < d.sent_frames for d in directions)
            and load.addresses is AddressPlan.FIXED
            and ended_at >= self._back_at_s
        ):
            self._back_at_s = ended_at + self.dut.recovery_s
        self.now_s = ended_at + self._overhead_s
        return TrialResult(
            request=request,
            started_at=started_at,
            verdict=TrialVerdict.INVALID if reasons else TrialVerdict.VALID,
            reasons=reasons,
            directions=tuple(directions),
        )

    def _send(self, load: Load, intended: int) -> tuple[int, float, tuple[str, ...]]:
        """Return frames sent, the sending time, and the reasons why the trial is invalid."""
        if not load.rate_fps:
            return 0, 0.0, ("no rate",)
        transmit_s = intended / load.rate_fps
        if self._ceiling_fps is None or load.rate_fps <= self._ceiling_fps:
            return intended, transmit_s, ()
        if self._is_stubborn:
            return intended, intended / self._ceiling_fps, ()
        sent = int(self._ceiling_fps * transmit_s)
        return sent, transmit_s, (f"sent {sent} of {intended} frames",)

    def _forward(self, load: Load, sent: int, transmit_s: float, is_bad: bool) -> int:
        """Return the number of frames that arrive."""
        if load.addresses is not AddressPlan.FIXED and self.dut.table_size is not None:
            stations = range(load.first_station, load.first_station + min(load.stations, sent))
            if load.addresses is AddressPlan.SOURCES:
                self._learn(stations, load.rate_fps)
            elif load.addresses is AddressPlan.RETURNED:
                return sum(station not in self._table for station in stations) * sent // max(1, len(stations))
        offered_fps = sent / transmit_s if transmit_s else 0.0
        excess = max(0.0, (offered_fps - self._forwarded_fps(offered_fps)) * transmit_s - self.dut.buffer_frames)
        if self.now_s < self._back_at_s:
            excess = max(excess, offered_fps * min(transmit_s, self._back_at_s - self.now_s))
        # A load equal to the capacity must not lose a frame because of rounding.
        lost = int(excess + 1e-6)
        lost += int(self._random.binomial(sent, self.dut.random_loss_ratio)) if self.dut.random_loss_ratio else 0
        lost += int(sent * self.dut.bad_trial_loss_ratio) if is_bad else 0
        return max(0, sent - lost)

    def _forwarded_fps(self, offered_fps: float) -> float:
        """Return the forwarding rate at an offered load: the load, then a parabola tangent to both lines, then the capacity."""
        capacity = self.dut.capacity_fps * max(0.0, 1 + self.dut.capacity_deviation * float(self._random.standard_normal()))
        width = capacity * self.dut.softness
        if offered_fps <= capacity - width:
            return offered_fps
        if offered_fps >= capacity + width:
            return capacity
        return offered_fps - (offered_fps - capacity + width) ** 2 / (4 * width)

    def _learn(self, stations: range, rate_fps: float) -> None:
        """Add the addresses to the table that the device can learn at this rate."""
        share = min(1.0, self.dut.learning_fps / rate_fps)
        for index, station in enumerate(stations):
            # Always learn the first address; then those that the learning rate allows.
            if index and int(index * share) == int((index - 1) * share):
                continue
            self._table.pop(station, None)
            if len(self._table) >= (self.dut.table_size or 0):
                if self.dut.full_table is FullTable.REFUSES or not self._table:
                    continue
                del self._table[next(iter(self._table))]
            self._table[station] = None

    def _latency(self, offered_fps: float, received: int) -> LatencySummary | None:
        """Return the latency at a load: it grows towards the capacity; above the capacity the full buffer adds to it."""
        if not received or not self.dut.capacity_fps:
            return None
        use = min(0.99, offered_fps / self.dut.capacity_fps)
        mean_ns = self.dut.latency_ns * (1 + 0.1 * use / (1 - use))
        if offered_fps > self.dut.capacity_fps:
            mean_ns += 1e9 * self.dut.buffer_frames / self.dut.capacity_fps
        tail = {name: mean_ns * (1 - np.log1p(-part)) / 2 for name, part in _PERCENTILES.items()} if self._tells_percentiles else {}
        return LatencySummary(
            frames=received,
            min_ns=mean_ns / 2,
            mean_ns=mean_ns,
            max_ns=mean_ns * 6,
            percentiles_ns={name: float(value) for name, value in tail.items()},
            precision=0.001 if tail else None,
        )
