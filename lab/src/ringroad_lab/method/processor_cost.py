"""The device's processor time and cycles per frame at parts of the throughput, and its processor time without load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from ringroad_lab.cost import PROCESSORS_RESOLUTION, Cost, CostMeter
from ringroad_lab.generator.interface import Generator, WrappedGenerator
from ringroad_lab.method.latency import load_name
from ringroad_lab.method.throughput import ThroughputSettings, throughput_of
from ringroad_lab.method.trial_series import NoFigureError, TrialMethod, TrialSeries, TrialSettings
from ringroad_lab.record import Better, MeasurementStatus, Metric, Outcome
from ringroad_lab.trial import TrialRequest, TrialResult

# Reported with each result.
CONDITIONS = (
    "Processor time for a frame is the time of all of the device's threads, divided by the frames that returned to the generator. With "
    "guests, each of these frames passed the device more than once. The device's time without load counts only while frames are sent.",
    "Busy time for a frame is reported by the device: the time during which its forwarding threads processed frames. Compare devices "
    "that poll with devices that sleep by busy time, at the same offered load: small batches cost more for each frame than full batches.",
    "Time of the kernel is the kernel's time on the whole machine, minus the kernel's time without load. System calls of a generator on "
    "the same machine are included. This time is the cost of a device that is the kernel itself, which has no process.",
)


# Resolution of the cost per frame, ns: the kernel's clock counts whole ticks, and cannot resolve less in a trial.
_NS_RESOLUTION = 1.0


class ProcessorCostSettings(TrialSettings):
    """Settings of the processor-cost method."""

    load_ratios: Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], Field(min_length=1)] = (1.0, 0.5)
    """Loads, as parts of the throughput; the result at the first load is the headline."""
    trial_s: Annotated[float, Field(gt=0, le=86_400)] = 5.0
    """Length of a trial."""
    idle_s: Annotated[float, Field(gt=0, le=3600)] = 2.0
    """Time that the device is measured without load."""
    throughput: ThroughputSettings = ThroughputSettings()
    """Search for the throughput if it is not known."""


class MeteredGenerator(WrappedGenerator):
    """A generator that also measures what each trial costs the device."""

    def __init__(self, generator: Generator, meter: CostMeter) -> None:
        """Take the generator and the cost meter."""
        super().__init__(generator)
        self._meter = meter
        self._costs: list[tuple[TrialResult, Cost]] = []

    def trial(self, request: TrialRequest) -> TrialResult:
        """Offer a load, and measure its cost."""
        result, cost = self._meter.over(lambda: self._generator.trial(request))
        self._costs.append((result, cost))
        return result

    def cost_of(self, result: TrialResult) -> Cost:
        """Return the cost of one of its trials."""
        return next(cost for known, cost in self._costs if known is result)


class ProcessorCostMethod(TrialMethod):
    """Processor time and cycles for each frame, and processor time without load."""

    title: ClassVar[str] = "Processor time for a frame, and without load"
    settings_type: ClassVar[type[ProcessorCostSettings]] = ProcessorCostSettings
    settings: ProcessorCostSettings

    def expected_s(self, trial_overhead_s: float) -> float:
        """See [`Method.expected_s`]; for an unknown throughput."""
        settings = self.settings
        trials_s = len(settings.load_ratios) * (settings.trial_s + trial_overhead_s)
        return settings.throughput.expected_s(trial_overhead_s) + settings.idle_s + trials_s

    def deviations(self) -> tuple[str, ...]:
        """See [`Method.deviations`]."""
        return (*CONDITIONS, *self.settings.throughput.deviations())

    def evaluate(self, series: TrialSeries) -> Outcome:
        """Find the throughput, then measure the device without load and at each load."""
        settings, context = self.settings, series.context
        if context.costs is None:
            raise NoFigureError(MeasurementStatus.INVALID, "the cost of this device cannot be measured")
        throughput_fps = throughput_of(series, settings.throughput)
        idle = context.costs.idle(settings.idle_s)
        metered = MeteredGenerator(context.generator, context.costs)
        metered_series = TrialSeries(replace(context, generator=metered), settings.invalid_repeats)
        metrics = _idle_metrics(idle) | {"throughput_fps": Metric(value=throughput_fps, unit="frames/s", better=Better.HIGHER)}
        reasons: list[str] = []
        for ratio in settings.load_ratios:
            rate_fps = ratio * throughput_fps
            judged = metered_series.run(
                rate_fps,
                settings.trial_s,
                "processor-cost",
                acceptable_loss_ratio=settings.throughput.acceptable_loss_ratio,
                loss_repeats=settings.throughput.loss_repeats,
                loss_alone_counts=False,
            )
            if not judged.counts:
                reasons.append(f"the generator could not carry {rate_fps:.0f} frames/s: {'; '.join(judged.reasons)}")
                continue
            if not judged.passes:
                lost = f"{judged.result.device_lost_frames} frames were lost at {rate_fps:.0f} frames/s"
                reasons.append(f"{lost}, although that is not above the throughput")
            metrics |= load_metrics(f"cost_{load_name(ratio)}", metered.cost_of(judged.result), idle, judged.result)
        first = load_name(settings.load_ratios[0])
        # Devices of the kernel have no process: their cost is in the kernel's time.
        of_frame = "processor_ns" if any(name.endswith("_processor_ns") for name in metrics) else "kernel_ns"
        costs = [*(f"cost_{load_name(ratio)}_{of_frame}" for ratio in settings.load_ratios), "cost_idle_processors", "dut_memory_bytes"]
        headline = f"cost_{first}_{of_frame}"
        if not any(name.endswith(("_processor_ns", "_kernel_ns")) for name in metrics):
            raise NoFigureError(MeasurementStatus.INVALID, "; ".join(reasons) or "the device's machine reports no processor time")
        return Outcome(
            status=MeasurementStatus.INCONCLUSIVE if reasons else MeasurementStatus.OK,
            reasons=tuple(dict.fromkeys(reasons)),
            headline=headline if headline in metrics else "",
            compared=tuple(name for name in costs if name in metrics and name != headline),
            metrics=metrics | metered_series.counters(),
        )


def _idle_metrics(idle: Cost) -> dict[str, Metric]:
    metrics = {}
    if idle.processors is not None:
        metrics["cost_idle_processors"] = Metric(
            value=max(0.0, idle.processors), unit="processors", better=Better.LOWER, resolution=PROCESSORS_RESOLUTION
        )
    if idle.memory_bytes is not None:
        metrics["dut_memory_bytes"] = Metric(value=idle.memory_bytes, unit="bytes", better=Better.LOWER)
    return metrics


def load_metrics(prefix: str, cost: Cost, idle: Cost, trial: TrialResult) -> dict[str, Metric]:
    """Return the cost of a frame in a trial, minus the device's cost without load while the trial is set up and read.

    Metrics are named `PREFIX_processor_ns`, `PREFIX_busy_ns`, ...
    """
    frames = sum(way.received_frames for way in trial.directions)
    if not frames:
        return {}
    spare_s = max(0.0, cost.elapsed_s - max(way.transmit_s for way in trial.directions))

    def of_a_frame(taken: Callable[[Cost], float | None], not_counted_s: float) -> float | None:
        whole, without_load = taken(cost), taken(idle)
        if whole is None or without_load is None or not idle.elapsed_s:
            return None
        return max(0.0, whole - without_load * not_counted_s / idle.elapsed_s) / frames

    metrics = {}
    for what, unit, scale, taken, not_counted_s in (
        ("processor_ns", "ns/frame", 1e9, lambda each: each.run_s, spare_s),
        # An idle thread that polls is not busy.
        ("busy_ns", "ns/frame", 1e9, lambda each: each.busy_s, 0.0),
        ("cycles", "cycles/frame", 1.0, lambda each: each.cycles, spare_s),
        # The kernel does not poll: its work without load is for other processes.
        ("kernel_ns", "ns/frame", 1e9, lambda each: each.kernel_s, cost.elapsed_s),
    ):
        if (value := of_a_frame(taken, not_counted_s)) is not None:
            resolution = _NS_RESOLUTION if unit == "ns/frame" else 0.0
            metrics[f"{prefix}_{what}"] = Metric(value=value * scale, unit=unit, better=Better.LOWER, resolution=resolution)
    if cost.wait_ratio is not None:
        metrics[f"{prefix}_wait_ratio"] = Metric(value=max(0.0, cost.wait_ratio), unit="ratio", better=Better.LOWER)
    return metrics
