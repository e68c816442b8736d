"""Throughput, cost per frame and loading time by number of flow entries. The frames are spread over all entries."""

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

# Entries that a flow table accepts per second, for the expected time.
_LOADED_PER_S = 20_000.0
_COST_LOSS_RATIO = 0.05
_ONE_WAY = (
    "Frames go from port 1 to port 2 only, because the flow entries are for that direction. Each frame is made to match one entry: the "
    "entries in turn or, with more than 1024 source addresses, entries drawn at random, anew for each trial."
)
# Curves shown for each flow set, by the end of the metric's name.
_SHOWN = {
    "throughput_fps": ("throughput", "frames/s"),
    "busy_ns": ("busy time for a frame", "ns/frame"),
    "processor_ns": ("processor time for a frame", "ns/frame"),
    "loading_per_s": ("flow entries added", "entries/s"),
}


class FlowCountsSettings(TrialSettings):
    """Settings of the flow-counts method."""

    counts: Annotated[tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...], Field(min_length=1)] = (1, 1_000, 100_000, 1_000_000)
    """Numbers of entries; each entry matches one source address."""
    masks: Annotated[tuple[Annotated[int, Field(ge=1, le=20)], ...], Field(min_length=1)] = (1, 20)
    """Numbers of masks to combine with each number of entries; combinations with fewer entries than masks are skipped."""
    acl_entries: Annotated[int, Field(ge=0, le=MOST_ENTRIES)] = 10_000
    """Entries of a rule list like ClassBench's; 0: none."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Seed of that list."""
    load_ratio: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Load at which the cost per frame is measured, as part of the throughput."""
    trial_s: Annotated[float, Field(gt=0, le=86_400)] = 5.0
    """Length of that trial."""
    idle_s: Annotated[float, Field(gt=0, le=3600)] = 2.0
    """Time that the device is measured without load."""
    throughput: ThroughputSettings = ThroughputSettings(minimum_ratio=0.0001)
    """Search for the throughput. The minimum is low, because a cache that does not hold the flows leaves very little throughput."""

    def flow_sets(self) -> Iterator[FlowSet]:
        """Yield the flow sets to measure, in order."""
        for masks in self.masks:
            for count in self.counts:
                if count >= masks:
                    yield FlowSet(entries=count, masks=masks)
        if self.acl_entries:
            yield FlowSet(shape=FlowShape.ACL, entries=self.acl_entries, seed=self.seed)


@dataclass
class _Found:
    """Results of all flow sets."""

    metrics: dict[str, Metric] = field(default_factory=dict)
    points: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    """Number of entries and value, by kind of set and end of the metric's name."""
    bounds: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    worst: MeasurementStatus = MeasurementStatus.INCONCLUSIVE
    """Status of the measurement if no set has a result."""


class FlowCountsMethod(TrialMethod):
    """Throughput and cost by number of flow entries."""

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
        """Measure each set, then restore the usual flows."""
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
        """Find the throughput with a set, and the cost per frame near it."""
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
        # A few lost frames do not change the cost per frame; other processes on the processors do.
        rate_fps = max(1.0, settings.load_ratio * throughput.throughput_fps)
        judged = own.run(rate_fps, settings.trial_s, "processor-cost", acceptable_loss_ratio=_COST_LOSS_RATIO, loss_alone_counts=False)
        if not judged.counts:
            found.missing.append(f"{_name(flow_set)}: no cost: {'; '.join(judged.reasons)}")
            return
        for what, metric in load_metrics("of", metered.cost_of(judged.result), idle, judged.result).items():
            _add(found, flow_set, what.removeprefix("of_"), metric)


def _name(flow_set: FlowSet) -> str:
    """Return the name of a set, for users and metrics."""
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
