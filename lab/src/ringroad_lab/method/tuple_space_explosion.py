"""The cost of an attack on tuple space search for a bystander: the frames that still arrive, and the device's time for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from ringroad_lab.cost import CostMeter
from ringroad_lab.method.interface import MethodContext
from ringroad_lab.method.latency import load_name
from ringroad_lab.method.processor_cost import CONDITIONS, MeteredGenerator, load_metrics
from ringroad_lab.method.throughput import ThroughputSettings, find_throughput
from ringroad_lab.method.trial_series import NoFigureError, TrialMethod, TrialSeries, TrialSettings
from ringroad_lab.record import Better, MeasurementStatus, Metric, Outcome
from ringroad_lab.trial import FlowSet, TrialResult

ATTACK = (
    "The attacker's frames enter at port 2 and are dropped by a white list; the bystander's frames go from port 1 to port 2. Costs are "
    "the costs of all frames, divided by the bystander's frames that returned."
)


class TupleSpaceExplosionSettings(TrialSettings):
    """Settings of the tuple-space-explosion method."""

    flows: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """Number of the bystander's flows."""
    attack_fps: Annotated[float, Field(ge=1, le=1e9)] = 10_000.0
    """Rate of the attacker's frames, of 64 bytes, frames/s: 6.7 Mbit/s on a wire. The paper's attack uses a few Mbit/s."""
    load_ratios: Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], Field(min_length=1)] = (1.0, 0.5)
    """The bystander's loads, as parts of the throughput without the attack; the result at the first load is the headline."""
    lead_s: Annotated[float, Field(gt=0, le=3600)] = 2.0
    """Length of a first trial with the attack, which is discarded: it shows the device each header of the attack."""
    trial_s: Annotated[float, Field(gt=0, le=86_400)] = 5.0
    """Length of a trial."""
    idle_s: Annotated[float, Field(gt=0, le=3600)] = 2.0
    """Time that the device is measured without load."""
    throughput: ThroughputSettings = ThroughputSettings()
    """Search for the throughput without the attack."""


class TupleSpaceExplosionMethod(TrialMethod):
    """Measures a bystander's frames while an attacker makes a cache of masks grow."""

    title: ClassVar[str] = "Tuple space explosion: an attack's cost for a bystander (CoNEXT 2019)"
    settings_type: ClassVar[type[TupleSpaceExplosionSettings]] = TupleSpaceExplosionSettings
    settings: TupleSpaceExplosionSettings

    def expected_s(self, trial_overhead_s: float) -> float:
        """See [`Method.expected_s`]."""
        settings = self.settings
        trials_s = 2 * len(settings.load_ratios) * (settings.trial_s + trial_overhead_s) + settings.lead_s + trial_overhead_s
        return settings.throughput.expected_s(trial_overhead_s) + settings.idle_s + trials_s

    def deviations(self) -> tuple[str, ...]:
        """See [`Method.deviations`]."""
        return (ATTACK, *CONDITIONS, *self.settings.throughput.deviations())

    def evaluate(self, series: TrialSeries) -> Outcome:
        """Find the throughput, then offer parts of it without the attack and with it."""
        settings, context = self.settings, series.context
        if context.install_flows is None or context.costs is None:
            raise NoFigureError(MeasurementStatus.INVALID, "flow entries cannot be put into this device, or its cost cannot be measured")
        try:
            metrics, reasons = self._measure(context, context.costs, context.install_flows)
        finally:
            context.install_flows(None)
        headline = f"attacked_{load_name(settings.load_ratios[0])}_arrived_ratio"
        if headline not in metrics:
            raise NoFigureError(MeasurementStatus.INVALID, "; ".join(reasons))
        return Outcome(
            status=MeasurementStatus.INCONCLUSIVE if reasons else MeasurementStatus.OK,
            reasons=tuple(reasons),
            headline=headline,
            compared=tuple(name for name in metrics if _is_compared(name) and name != headline),
            metrics=metrics,
        )

    def _measure(
        self, context: MethodContext, costs: CostMeter, install_flows: Callable[[FlowSet | None], float]
    ) -> tuple[dict[str, Metric], list[str]]:
        """Return the metrics, and why some are missing."""
        settings = self.settings
        flow_set = FlowSet(entries=settings.flows, white_list=True)
        install_flows(flow_set)
        idle = costs.idle(settings.idle_s)
        metered = MeteredGenerator(context.generator, costs)
        # The white list drops frames that a switch could learn from; learning is not needed.
        quiet = replace(
            context, generator=metered, bidirectional=False, flows=settings.flows, load={"flow_set": flow_set, "learning": False}
        )
        attacked = replace(quiet, load={**quiet.load, "attack_fps": settings.attack_fps})
        throughput = find_throughput(TrialSeries(quiet, settings.invalid_repeats), settings.throughput)
        metrics = {"throughput_fps": Metric(value=throughput.throughput_fps, unit="frames/s", better=Better.HIGHER)}
        reasons: list[str] = []
        for name, phase in (("quiet", quiet), ("attacked", attacked)):
            own = TrialSeries(phase, settings.invalid_repeats)
            if phase is attacked:
                own.warm_up(settings.load_ratios[-1] * throughput.throughput_fps, settings.lead_s)
            for ratio in settings.load_ratios:
                rate_fps = ratio * throughput.throughput_fps
                # Any loss is acceptable: the part that arrives is the result.
                judged = own.run(rate_fps, settings.trial_s, name, acceptable_loss_ratio=1.0, loss_alone_counts=False)
                if not judged.counts:
                    reasons.append(f"the generator could not carry {rate_fps:.0f} frames/s ({name}): {'; '.join(judged.reasons)}")
                    continue
                prefix = f"{name}_{load_name(ratio)}"
                metrics[f"{prefix}_arrived_ratio"] = Metric(value=_arrived_ratio(judged.result), unit="ratio", better=Better.HIGHER)
                metrics |= load_metrics(prefix, metered.cost_of(judged.result), idle, judged.result)
        return metrics, reasons


def _is_compared(metric: str) -> bool:
    return metric.startswith("attacked_") and metric.endswith(("_arrived_ratio", "_busy_ns"))


def _arrived_ratio(result: TrialResult) -> float:
    """Return the part of the sent frames that the device forwarded: frames waiting before it are lost, frames lost behind it are not."""
    loss = result.loss
    behind = (loss.behind_device or 0) + (loss.at_receiver or 0) if loss else 0
    return 1 - (result.lost_frames - behind) / result.sent_frames
