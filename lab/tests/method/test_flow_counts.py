"""Throughput and cost over the number of flow entries, of a simulated device whose speed depends on the size of its table."""

from __future__ import annotations

import pytest

from ringroad_lab.generator.interface import Generator
from ringroad_lab.method.flow_counts import FlowCountsMethod, FlowCountsSettings
from ringroad_lab.record import Better, MeasurementStatus
from ringroad_lab.trial import FlowSet, FlowShape, TrialRequest, TrialResult
from simulated_bench import MAX_FPS, Bench
from simulated_generator import SimulatedDut, SimulatedGenerator

SETTINGS = FlowCountsSettings(counts=(1, 1000), masks=(1, 20), acl_entries=500, seed=9)


class FewerForMore(Generator):
    """A device that carries less with more entries, and nothing with too many."""

    def __init__(self, most_entries: int = 1_000_000) -> None:
        self._most_entries = most_entries

    def trial(self, request: TrialRequest) -> TrialResult:
        flow_set = request.load.flow_set
        assert flow_set is not None
        assert request.load.flows == flow_set.entries
        assert not request.load.bidirectional
        is_full = flow_set.entries > self._most_entries
        dut = SimulatedDut(capacity_fps=800_000.0 / (1 + flow_set.entries / 1000), dies_at_trial=0 if is_full else None)
        return SimulatedGenerator(dut).trial(request)

    def version(self) -> str:
        return "simulated"


def test_each_set_is_loaded_offered_and_measured() -> None:
    bench = Bench(FewerForMore(), loading_s=0.5)
    outcome = FlowCountsMethod(SETTINGS).measure(bench.context)
    assert outcome.status is MeasurementStatus.OK
    assert bench.installed == [
        FlowSet(entries=1),
        FlowSet(entries=1000),
        # One entry has one mask.
        FlowSet(entries=1000, masks=20),
        FlowSet(shape=FlowShape.ACL, entries=500, seed=9),
        None,
    ]
    metrics = outcome.metrics
    assert metrics["flows_1_masks_1_throughput_fps"].value == pytest.approx(800_000, rel=0.02)
    assert metrics["flows_1000_masks_20_throughput_fps"].value == pytest.approx(400_000, rel=0.02)
    assert metrics["acl_500_throughput_fps"].value == pytest.approx(533_333, rel=0.02)
    assert metrics["flows_1000_masks_1_loading_per_s"].value == 2000
    assert metrics["flows_1000_masks_1_processor_ns"].value == pytest.approx(100.0)
    assert metrics["flows_1000_masks_1_busy_ns"].better is Better.LOWER
    assert outcome.headline == "flows_1000_masks_20_throughput_fps"
    assert {"flows_1_masks_1_throughput_fps", "acl_500_busy_ns"} <= set(outcome.compared)
    curves = {curve.name: curve for curve in outcome.curves}
    (one, thousand) = curves["throughput with 1 mask"].points
    assert (one[0], thousand[0]) == (1, 1000)
    assert one[1] > 1.9 * thousand[1]
    assert [x for x, _ in curves["busy time for a frame with 20 masks"].points] == [1000]


def test_a_set_without_forwarded_frames_has_no_result_and_does_not_hide_other_sets() -> None:
    bench = Bench(FewerForMore(most_entries=600), loading_s=0.5)
    outcome = FlowCountsMethod(SETTINGS).measure(bench.context)
    assert outcome.status is MeasurementStatus.INCONCLUSIVE
    assert len(outcome.reasons) == 2
    assert outcome.reasons[0].startswith("flows_1000_masks_1: the device forwards nothing")
    assert "flows_1000_masks_1_throughput_fps" not in outcome.metrics
    assert outcome.headline == "flows_1_masks_1_throughput_fps"
    assert bench.installed[-1] is None


def test_the_generators_ceiling_is_a_lower_bound_for_its_set() -> None:
    bench = Bench(FewerForMore(), max_fps=500_000, is_max_generator_bound=True, loading_s=0.5)
    outcome = FlowCountsMethod(SETTINGS).measure(bench.context)
    assert outcome.status is MeasurementStatus.LOWER_BOUND
    assert [reason.partition(":")[0] for reason in outcome.reasons] == ["flows_1_masks_1", "acl_500"]


def test_a_device_without_a_flow_table_has_no_result() -> None:
    outcome = FlowCountsMethod(SETTINGS).measure(Bench(FewerForMore(), loading_s=None).context)
    assert outcome.status is MeasurementStatus.INVALID
    assert "flow entries cannot be put into this device" in outcome.reasons[0]


def test_the_usual_flows_are_restored_when_the_generator_fails() -> None:
    class Failing(FewerForMore):
        def trial(self, request: TrialRequest) -> TrialResult:
            raise RuntimeError("gone")

    bench = Bench(Failing(), max_fps=MAX_FPS, loading_s=0.5)
    with pytest.raises(RuntimeError, match="gone"):
        FlowCountsMethod(SETTINGS).measure(bench.context)
    assert bench.installed[-1] is None
