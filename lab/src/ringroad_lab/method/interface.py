"""The interface of methods of measurement, and the register of all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict

from ringroad_lab.cost import CostMeter
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.generator.interface import Generator
from ringroad_lab.record import Outcome
from ringroad_lab.trial import DisturbanceLimits, FlowSet, TrialResult


class MethodSettings(BaseModel):
    """What can be set of a method; each method has its own, with the source of its defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def strict(cls) -> Self:
        """Return the settings that keep to the letter of the RFC, as far as the method can; the defaults are for quick results."""
        return cls()


class DisturbedRepeats:
    """The budget of a measurement for the repetition of disturbed trials."""

    def __init__(self, limits: DisturbanceLimits) -> None:
        """Begin with all of it."""
        self._trials = limits.extra_trials
        self._rest_s = limits.extra_s

    def take(self, duration_s: float) -> bool:
        """Take a trial of so long out of it; False, and nothing is taken, where it is not left."""
        if not self._trials or duration_s > self._rest_s:
            return False
        self._trials -= 1
        self._rest_s -= duration_s
        return True


@dataclass(frozen=True)
class MethodContext:
    """What a method measures with."""

    generator: Generator
    frame: FrameMix
    max_fps: float
    """Greatest load of each direction, frames/s: the link's line rate or the generator's own ceiling, whichever is less."""
    is_max_generator_bound: bool
    """Whether `max_fps` is the generator's ceiling: what passes there is a lower bound, and is said to be."""
    bidirectional: bool
    flows: int
    vlans: tuple[int, int] = field(default=(0, 0), kw_only=True)
    """VLAN of the frames that each port sends; 0: no tag."""
    vnis: tuple[int, int] = field(default=(0, 0), kw_only=True)
    """VXLAN network of the frames that each port sends; 0: none."""
    on_trial: Callable[[TrialResult], None]
    """To be called with each trial, as soon as it is there: it is recorded, and the progress moves."""
    remaining_s: Callable[[float], None]
    """To be called with the expected rest of the time, s, when that is better known."""
    repeats: DisturbedRepeats = field(default_factory=lambda: DisturbedRepeats(DisturbanceLimits()))
    """What may still be spent on trials that others disturbed."""
    throughput_fps: float | None = None
    """Throughput of this device with these frames, frames/s of each direction, where it was measured just before; methods that need it and
    are not told find it themselves."""
    costs: CostMeter | None = None
    """What tells the processor time of the device; None where nobody does."""
    load: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    """Other fields of every load."""
    install_flows: Callable[[FlowSet | None], float] | None = None
    """Puts the entries of a flow set into the device's flow table, or with None its usual ones, and returns how long that took, s; None
    where nobody does."""
    between_stations: Callable[[], Outcome] | None = None
    """Measures between the two stations that the device joins: for methods that say so, and for no other."""


class Method(ABC):
    """A way to measure. Has no state between measurements; everything it does goes through the context's generator."""

    name: ClassVar[str]
    """As scenarios name it: `throughput`, `frame-loss`, ..."""
    title: ClassVar[str]
    """For people, with the RFC's section."""
    settings_type: ClassVar[type[MethodSettings]] = MethodSettings
    is_between_stations: ClassVar[bool] = False
    """Whether it measures between two stations with programs of their own, rather than by the generator; then frames have no set size."""

    def __init__(self, settings: MethodSettings) -> None:
        """Take checked settings, of `settings_type`."""
        self.settings = settings

    @abstractmethod
    def expected_s(self, trial_overhead_s: float) -> float:
        """Time that a measurement is expected to take, s, where each trial costs so much beside its duration."""

    def deviations(self) -> tuple[str, ...]:
        """Where the settings differ from what the RFC demands, a sentence each, for the report."""
        return ()

    @abstractmethod
    def measure(self, context: MethodContext) -> Outcome:
        """Measure one frame size.

        Raises:
            GeneratorError: the generator failed.
        """
