"""The cost of a frame, measured on simulated devices with a known cost."""

from __future__ import annotations

import dataclasses

import pytest

from ringroad_lab.method.processor_cost import ProcessorCostMethod, ProcessorCostSettings
from ringroad_lab.record import Better, MeasurementStatus, Outcome
from ringroad_lab.trial import TrialResult, TrialVerdict
from simulated_bench import MAX_FPS, Bench, Scripted, SimulatedCosts
from simulated_generator import SimulatedDut, SimulatedGenerator

CAPACITY_FPS = 400_000.0


def measure(costs: SimulatedCosts, throughput_fps: float | None = None) -> tuple[Outcome, Bench]:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=CAPACITY_FPS)), costs=costs, throughput_fps=throughput_fps)
    return ProcessorCostMethod(ProcessorCostSettings()).measure(bench.context), bench


def test_a_device_that_sleeps_has_the_same_cost_per_frame_at_every_load_and_no_cost_without_load() -> None:
    outcome, bench = measure(SimulatedCosts(run_ns=100.0, cycles=250.0, kernel_ns=40.0))
    assert outcome.status is MeasurementStatus.OK
    assert outcome.headline == "cost_100pct_processor_ns"
    assert outcome.compared == ("cost_50pct_processor_ns", "cost_idle_processors", "dut_memory_bytes")
    metrics = outcome.metrics
    for load in ("100pct", "50pct"):
        assert metrics[f"cost_{load}_processor_ns"].value == pytest.approx(100.0)
        assert metrics[f"cost_{load}_busy_ns"].value == pytest.approx(50.0)
        assert metrics[f"cost_{load}_cycles"].value == pytest.approx(250.0)
        assert metrics[f"cost_{load}_kernel_ns"].value == pytest.approx(40.0)
        assert metrics[f"cost_{load}_wait_ratio"].value == pytest.approx(0.5)
    assert metrics["cost_100pct_processor_ns"].unit == "ns/frame"
    assert metrics["cost_100pct_cycles"].unit == "cycles/frame"
    assert metrics["cost_100pct_processor_ns"].better is Better.LOWER
    assert metrics["cost_idle_processors"].value == 0.0
    assert metrics["dut_memory_bytes"].value == 4096
    throughput_fps = metrics["throughput_fps"].value
    assert throughput_fps == pytest.approx(CAPACITY_FPS, rel=0.01)
    assert bench.rates("processor-cost") == pytest.approx([throughput_fps, throughput_fps / 2])


def test_a_device_that_polls_costs_one_processor_with_and_without_load() -> None:
    outcome, _ = measure(SimulatedCosts(polls=True), throughput_fps=200_000)
    metrics = outcome.metrics
    # Both directions; the second in which a trial is set up and read does not count for any frame.
    assert metrics["cost_100pct_processor_ns"].value == pytest.approx(1e9 / 400_000)
    assert metrics["cost_50pct_processor_ns"].value == pytest.approx(1e9 / 200_000)
    assert metrics["cost_50pct_busy_ns"].value == pytest.approx(50.0)
    assert metrics["cost_100pct_cycles"].value == pytest.approx(2e9 / 400_000)
    assert metrics["cost_idle_processors"].value == pytest.approx(1.0)


def test_a_kernel_device_has_kernel_time_as_its_headline() -> None:
    outcome, _ = measure(SimulatedCosts(run_ns=None, cycles=None, kernel_ns=700.0))
    assert outcome.status is MeasurementStatus.OK
    assert outcome.headline == "cost_100pct_kernel_ns"
    assert outcome.compared == ("cost_50pct_kernel_ns",)
    assert outcome.metrics["cost_100pct_kernel_ns"].value == pytest.approx(700.0)
    assert not any("processor" in name or "memory" in name or "cycles" in name for name in outcome.metrics)


def test_without_a_cycle_counter_there_is_no_result_in_cycles() -> None:
    outcome, _ = measure(SimulatedCosts(cycles=None))
    assert outcome.status is MeasurementStatus.OK
    assert not any("cycles" in name for name in outcome.metrics)


def test_lost_frames_make_the_cost_inconclusive() -> None:
    outcome, _ = measure(SimulatedCosts(), throughput_fps=500_000)
    assert outcome.status is MeasurementStatus.INCONCLUSIVE
    assert "lost at 500000 frames/s" in outcome.reasons[0]
    assert outcome.metrics["cost_100pct_processor_ns"].value == pytest.approx(100.0)


@pytest.mark.parametrize("spoiled", ["lost frames", "a generator that was late"])
def test_one_bad_trial_is_repeated_and_the_cost_is_from_the_trial_that_counts(spoiled: str) -> None:
    def spoil(number: int, result: TrialResult) -> TrialResult:
        if number:
            return result
        if spoiled == "lost frames":
            return result.model_copy(update={"directions": tuple(d.model_copy(update={"received_frames": 10}) for d in result.directions)})
        return result.model_copy(update={"verdict": TrialVerdict.INVALID})

    generator = Scripted(SimulatedDut(capacity_fps=CAPACITY_FPS), spoil)
    bench = Bench(generator, costs=SimulatedCosts(polls=True), throughput_fps=200_000)
    outcome = ProcessorCostMethod(ProcessorCostSettings()).measure(bench.context)
    assert outcome.status is MeasurementStatus.OK
    assert outcome.metrics["cost_100pct_processor_ns"].value == pytest.approx(1e9 / 400_000)
    assert len(bench.trials) == 3


def test_a_load_that_the_generator_cannot_carry_has_no_cost() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=MAX_FPS), ceiling_fps=150_000), throughput_fps=200_000)
    outcome = ProcessorCostMethod(ProcessorCostSettings()).measure(bench.context)
    assert outcome.status is MeasurementStatus.INCONCLUSIVE
    assert outcome.headline == ""
    assert "cost_100pct_processor_ns" not in outcome.metrics
    assert outcome.metrics["cost_50pct_processor_ns"].value == pytest.approx(100.0)


def test_without_a_cost_meter_there_is_no_result() -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=CAPACITY_FPS)))
    outcome = ProcessorCostMethod(ProcessorCostSettings()).measure(dataclasses.replace(bench.context, costs=None))
    assert outcome.status is MeasurementStatus.INVALID
    assert "cannot be measured" in outcome.reasons[0]
    assert not bench.trials
