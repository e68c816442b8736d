"""Throughput, cost of a frame and time of loading over the number of flow entries, each of which has its part of the frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from pydantic import Field

from ringroad_lab.cost import Cost, CostMeter
from ringroad_lab.flow_set.acl_rules import MOST_ENTRIES
from ringroad_lab.method.interface import MethodContext
from ringroad_lab.method.processor_cost import CONDITIONS, MeteredGenerator, load_metrics
from ringroad_lab.method.throughput import ThroughputSettings, find_throughput
from ringroad_lab.method.trial_series import NoFigureError, TrialMethod, TrialSeries, TrialSettings
from ringroad_lab.record import Better, Curve, MeasurementStatus, Metric, Outcome
from ringroad_lab.trial import FlowSet, FlowShape

# What a flow table takes in a second, for the plan.
_LOADED_PER_S = 20_000.0
_COST_LOSS_RATIO = 0.05
_ONE_WAY = (
    "Frames go from port 1 to port 2 only, for the flow entries are of that way. Each matches an entry that it was made for: one after the "
    "other, or, of more than 1024 source addresses, drawn at random and anew for each trial."
)
# Curves: what is shown of each set, by the end of the metric's name.
_SHOWN = {
    "throughput_fps": ("throughput", "frames/s"),
    "busy_ns": ("busy time for a frame", "ns/frame"),
    "processor_ns": ("processor time for a frame", "ns/frame"),
    "loading_per_s": ("flow entries added", "entries/s"),
}


class FlowCountsSettings(TrialSettings):
    """Of flow entries in growing numbers."""

    counts: Annotated[tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...], Field(min_length=1)] = (1, 1_000, 100_000, 1_000_000)
    """How many entries, each for a source address."""
    masks: Annotated[tuple[Annotated[int, Field(ge=1, le=20)], ...], Field(min_length=1)] = (1, 20)
    """By how many masks each number of them; numbers below it are left out."""
    acl_entries: Annotated[int, Field(ge=0, le=MOST_ENTRIES)] = 10_000
    """Entries of a list of rules like ClassBench's; 0: none."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Of that list."""
    load_ratio: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Load at which a frame's cost is measured, of the throughput."""
    trial_s: Annotated[float, Field(gt=0, le=86_400)] = 5.0
    """Length of that trial."""
    idle_s: Annotated[float, Field(gt=0, le=3600)] = 2.0
    """How long the device is looked at without load."""
    throughput: ThroughputSettings = ThroughputSettings(minimum_ratio=0.0001)
    """How the throughput is found; a cache that does not hold the flows leaves very little of it."""

    def flow_sets(self) -> Iterator[FlowSet]:
        """Go through what is measured, in order."""
        for masks in self.masks:
            for count in self.counts:
                if count >= masks:
                    yield FlowSet(entries=count, masks=masks)
        if self.acl_entries:
            yield FlowSet(shape=FlowShape.ACL, entries=self.acl_entries, seed=self.seed)


@dataclass
class _Found:
    """What all sets gave."""

    metrics: dict[str, Metric] = field(default_factory=dict)
    points: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    """By kind of set and end of the metric's name: number of entries, figure."""
    bounds: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    worst: MeasurementStatus = MeasurementStatus.INCONCLUSIVE
    """What the measurement is if no set gave a figure."""


class FlowCountsMethod(TrialMethod):
    """Throughput and cost over the number of flow entries."""

    name: ClassVar[str] = "flow-counts"
    title: ClassVar[str] = "Throughput and cost over the number of flow entries"
    settings_type: ClassVar[type[FlowCountsSettings]] = FlowCountsSettings
    settings: FlowCountsSettings

    def expected_s(self, trial_overhead_s: float) -> float:
        """See [`Method.expected_s`]."""
        settings = self.settings
        each_s = settings.throughput.expected_s(trial_overhead_s) + settings.trial_s + trial_overhead_s
        return settings.idle_s + sum(each_s + flow_set.entries / _LOADED_PER_S for flow_set in settings.flow_sets())

    def deviations(self) -> tuple[str, ...]:
        """See [`Method.deviations`]."""
        return (_ONE_WAY, *CONDITIONS, *self.settings.throughput.deviations())

    def evaluate(self, series: TrialSeries) -> Outcome:
        """Measure each set, then put the usual flows back."""
        context = series.context
        if context.install_flows is None or context.costs is None:
            raise NoFigureError(MeasurementStatus.INVALID, "flow entries cannot be put into this device, or its cost cannot be measured")
        idle = context.costs.idle(self.settings.idle_s)
        found = _Found()
        try:
            for flow_set in self.settings.flow_sets():
                if loading_s := context.install_flows(flow_set):
                    loading = Metric(value=flow_set.entries / loading_s, unit="entries/s", better=Better.HIGHER)
                    _add(found, flow_set, "loading_per_s", loading)
                self._measure(context, context.costs, flow_set, idle, found)
        finally:
            context.install_flows(None)
        throughputs = [name for name in found.metrics if name.endswith("_throughput_fps")]
        if not throughputs:
            raise NoFigureError(found.worst, "; ".join(found.missing))
        by_masks = [name for name in throughputs if not name.startswith("acl")] or throughputs
        status = MeasurementStatus.LOWER_BOUND if found.bounds else MeasurementStatus.OK
        headline = by_masks[-1]
        return Outcome(
            status=MeasurementStatus.INCONCLUSIVE if found.missing else status,
            reasons=(*found.missing, *found.bounds),
            headline=headline,
            compared=tuple(
                name for name in found.metrics if name.endswith(("_throughput_fps", "_busy_ns", "_processor_ns")) and name != headline
            ),
            metrics=found.metrics | series.counters(),
            curves=tuple(_curve(kind, ending, points) for (kind, ending), points in found.points.items()),
        )

    def _measure(self, context: MethodContext, costs: CostMeter, flow_set: FlowSet, idle: Cost, found: _Found) -> None:
        """Find the throughput with a set, and what a frame costs near it."""
        settings = self.settings
        metered = MeteredGenerator(context.generator, costs)
        own = TrialSeries(
            replace(context, generator=metered, bidirectional=False, flows=flow_set.entries, load={"flow_set": flow_set}),
            settings.invalid_repeats,
        )
        try:
            throughput = find_throughput(own, settings.throughput)
        except NoFigureError as error:
            found.missing.append(f"{_name(flow_set)}: {error.reason}")
            found.worst = error.status if error.status is MeasurementStatus.INVALID else found.worst
            return
        if throughput.bound_reason:
            found.bounds.append(f"{_name(flow_set)}: {throughput.bound_reason}")
        _add(found, flow_set, "throughput_fps", Metric(value=throughput.throughput_fps, unit="frames/s", better=Better.HIGHER))
        # A frame costs the same where a few others are lost; what others take of the processors tells in its cost.
        rate_fps = max(1.0, settings.load_ratio * throughput.throughput_fps)
        judged = own.run(rate_fps, settings.trial_s, "processor-cost", acceptable_loss_ratio=_COST_LOSS_RATIO, loss_alone_counts=False)
        if not judged.counts:
            found.missing.append(f"{_name(flow_set)}: no cost: {'; '.join(judged.reasons)}")
            return
        for what, metric in load_metrics("of", metered.cost_of(judged.result), idle, judged.result).items():
            _add(found, flow_set, what.removeprefix("of_"), metric)


def _name(flow_set: FlowSet) -> str:
    """Name of a set, for people and metrics alike."""
    return f"acl_{flow_set.entries}" if flow_set.shape is FlowShape.ACL else f"flows_{flow_set.entries}_masks_{flow_set.masks}"


def _kind(flow_set: FlowSet) -> str:
    if flow_set.shape is FlowShape.ACL:
        return "with rules of an access control list"
    return "with 1 mask" if flow_set.masks == 1 else f"with {flow_set.masks} masks"


def _add(found: _Found, flow_set: FlowSet, what: str, metric: Metric) -> None:
    found.metrics[f"{_name(flow_set)}_{what}"] = metric
    if what in _SHOWN:
        found.points.setdefault((_kind(flow_set), what), []).append((flow_set.entries, metric.value))


def _curve(kind: str, ending: str, points: list[tuple[float, float]]) -> Curve:
    y_name, y_unit = _SHOWN[ending]
    return Curve(name=f"{y_name} {kind}", x_name="flow entries", x_unit="entries", y_name=y_name, y_unit=y_unit, points=tuple(points))
