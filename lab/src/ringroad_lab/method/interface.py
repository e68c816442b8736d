"""The interface of measurement methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ringroad_lab.cost import CostMeter
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.generator.interface import Generator
from ringroad_lab.kinds import Kinds
from ringroad_lab.record import Outcome
from ringroad_lab.trial import DisturbanceLimits, FlowSet, Frozen, TrialResult


class MethodSettings(Frozen):
    """Settings of a method. Each method has its own settings, with the source of their defaults."""


class DisturbedRepeats:
    """The budget of a measurement for repetitions of disturbed trials."""

    def __init__(self, limits: DisturbanceLimits) -> None:
        """Start with the whole budget."""
        self._trials = limits.extra_trials
        self._rest_s = limits.extra_s

    def take(self, duration_s: float) -> bool:
        """Take a trial of this duration from the budget; return False and take nothing if the budget is too small."""
        if not self._trials or duration_s > self._rest_s:
            return False
        self._trials -= 1
        self._rest_s -= duration_s
        return True


@dataclass(frozen=True)
class MethodContext:
    """Everything that a method needs to measure."""

    generator: Generator
    frame: FrameMix
    max_fps: float
    """Greatest load of each direction, frames/s: the link's line rate or the generator's own ceiling, whichever is lower."""
    is_max_generator_bound: bool
    """Whether `max_fps` is the generator's ceiling: a load that passes there is reported as a lower bound."""
    bidirectional: bool
    flows: int
    vlans: tuple[int, int] = field(default=(0, 0), kw_only=True)
    """VLAN of the frames that each port sends; 0: no tag."""
    vnis: tuple[int, int] = field(default=(0, 0), kw_only=True)
    """VXLAN network of the frames that each port sends; 0: none."""
    on_trial: Callable[[TrialResult], None]
    """Takes each trial as soon as the trial has ended: records the trial and updates the progress."""
    remaining_s: Callable[[float], None]
    """Takes the expected remaining time, s, when a better estimate is available."""
    repeats: DisturbedRepeats = field(default_factory=lambda: DisturbedRepeats(DisturbanceLimits()))
    """Remaining budget for repetitions of disturbed trials."""
    throughput_fps: float | None = None
    """Throughput of this device with these frames, frames/s of each direction, if it was measured just before. If None, methods that need
    it measure it themselves."""
    costs: CostMeter | None = None
    """Measures the processor time of the device; None if that is not possible."""
    load: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    """Additional fields of every load."""
    install_flows: Callable[[FlowSet | None], float] | None = None
    """Installs the entries of a flow set in the device's flow table, or the usual entries if called with None. Returns how long that took,
    s. None if the device does not support this."""
    between_stations: Callable[[], Outcome] | None = None
    """Measures between the two stations that the device connects; set only for methods with `is_between_stations`."""


class Method(ABC):
    """A measurement method. Keeps no state between measurements, and acts only through its context."""

    title: ClassVar[str]
    """Title for users, with the RFC's section."""
    settings_type: ClassVar[type[MethodSettings]] = MethodSettings
    is_between_stations: ClassVar[bool] = False
    """Whether it measures with programs on two stations instead of the generator; then the frame size is not fixed."""

    def __init__(self, settings: MethodSettings) -> None:
        """Take validated settings of type `settings_type`."""
        self.settings = settings

    @abstractmethod
    def expected_s(self, trial_overhead_s: float) -> float:
        """Return the expected time of a measurement, s, if each trial takes `trial_overhead_s` in addition to its duration."""

    def deviations(self) -> tuple[str, ...]:
        """Return how the settings deviate from the RFC, one sentence for each deviation, for the report."""
        return ()

    @abstractmethod
    def measure(self, context: MethodContext) -> Outcome:
        """Measure one frame size.

        Raises:
            GeneratorError: the generator failed.
        """


# Methods in the order of their RFCs, then methods without an RFC.
METHODS: Kinds[Method] = Kinds(
    "ringroad_lab.methods",
    Method,
    {
        "throughput": "method.throughput:ThroughputMethod",
        "frame-loss": "method.frame_loss:FrameLossMethod",
        "latency": "method.latency:LatencyMethod",
        "back-to-back": "method.back_to_back:BackToBackMethod",
        "recovery": "method.recovery:RecoveryMethod",
        "forwarding-rate": "method.forwarding_rate:ForwardingRateMethod",
        "address-caching": "method.address_caching:AddressCachingMethod",
        "learning-rate": "method.learning_rate:LearningRateMethod",
        "mlrsearch": "method.mlrsearch:MlrSearchMethod",
        "soak": "method.soak:SoakMethod",
        "processor-cost": "method.processor_cost:ProcessorCostMethod",
        "flow-counts": "method.flow_counts:FlowCountsMethod",
        "tuple-space-explosion": "method.tuple_space_explosion:TupleSpaceExplosionMethod",
        "message-size": "method.message_size:MessageSizeMethod",
        "tcp-load": "method.tcp_load:TcpLoadMethod",
        "live-migration": "method.live_migration:LiveMigrationMethod",
    },
)
