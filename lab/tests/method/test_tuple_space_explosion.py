"""An attack's cost for a bystander, on simulated devices that the attack slows down or not."""

from __future__ import annotations

import pytest

from ringroad_lab.generator.interface import Generator
from ringroad_lab.method.tuple_space_explosion import TupleSpaceExplosionMethod, TupleSpaceExplosionSettings
from ringroad_lab.record import Better, MeasurementStatus
from ringroad_lab.trial import FlowSet, LossByPlace, TrialRequest, TrialResult
from simulated_bench import Bench
from simulated_generator import SimulatedDut, SimulatedGenerator

CAPACITY_FPS = 400_000.0


class Attackable(Generator):
    """A device with a part of its capacity left during an attack."""

    def __init__(self, left: float) -> None:
        self._left = left

    def trial(self, request: TrialRequest) -> TrialResult:
        left = self._left if request.load.attack_fps else 1.0
        return SimulatedGenerator(SimulatedDut(capacity_fps=CAPACITY_FPS * left)).trial(request)

    def version(self) -> str:
        return "simulated"


@pytest.mark.parametrize("left", [1.0, 0.25])
def test_the_result_is_the_part_of_the_bystanders_frames_that_arrives(left: float) -> None:
    bench = Bench(Attackable(left), loading_s=0.1)
    outcome = TupleSpaceExplosionMethod(TupleSpaceExplosionSettings()).measure(bench.context)
    assert outcome.status is MeasurementStatus.OK
    assert outcome.headline == "attacked_100pct_arrived_ratio"
    metrics = outcome.metrics
    assert metrics["quiet_100pct_arrived_ratio"].value == 1.0
    assert metrics["attacked_100pct_arrived_ratio"].value == pytest.approx(left, rel=0.02)
    assert metrics["attacked_50pct_arrived_ratio"].value == pytest.approx(min(1.0, 2 * left), rel=0.02)
    assert metrics["attacked_100pct_arrived_ratio"].better is Better.HIGHER
    assert metrics["attacked_100pct_busy_ns"].value == pytest.approx(50.0)
    assert outcome.compared == ("attacked_100pct_busy_ns", "attacked_50pct_arrived_ratio", "attacked_50pct_busy_ns")


def test_the_same_frames_are_offered_without_and_with_the_attack() -> None:
    bench = Bench(Attackable(0.5), loading_s=0.1)
    settings = TupleSpaceExplosionSettings(flows=70, attack_fps=123.0, load_ratios=(0.5,))
    TupleSpaceExplosionMethod(settings).measure(bench.context)
    assert bench.installed == [FlowSet(entries=70, white_list=True), None]
    loads = [trial.request.load for trial in bench.trials]
    # The list drops learning frames.
    assert not any(load.learning or load.bidirectional for load in loads)
    assert {load.flow_set for load in loads} == {FlowSet(entries=70, white_list=True)}
    attacked = [trial.request for trial in bench.trials if trial.request.load.attack_fps]
    assert [(request.purpose, request.load.attack_fps) for request in attacked] == [("warm-up", 123.0), ("attacked", 123.0)]
    quiet = next(trial.request for trial in bench.trials if trial.request.purpose == "quiet")
    assert quiet.load.rate_fps == attacked[-1].load.rate_fps


def test_frames_waiting_before_the_device_count_as_lost_and_frames_lost_behind_it_do_not() -> None:
    class Overrun(Attackable):
        def trial(self, request: TrialRequest) -> TrialResult:
            result = super().trial(request)
            if not request.load.attack_fps:
                return result
            (way,) = result.directions
            ahead, behind = way.sent_frames // 2, way.sent_frames // 4
            loss = LossByPlace(refused=0, before_device=ahead, in_device=0, in_guests=0, behind_device=0, at_receiver=behind, unexplained=0)
            way = way.model_copy(update={"received_frames": way.sent_frames - ahead - behind, "loss": loss})
            return result.model_copy(update={"directions": (way,)})

    outcome = TupleSpaceExplosionMethod(TupleSpaceExplosionSettings()).measure(Bench(Overrun(1.0), loading_s=0.1).context)
    assert outcome.metrics["attacked_100pct_arrived_ratio"].value == pytest.approx(0.5, abs=0.001)


def test_a_device_without_a_flow_table_has_no_result() -> None:
    outcome = TupleSpaceExplosionMethod(TupleSpaceExplosionSettings()).measure(Bench(Attackable(1.0), loading_s=None).context)
    assert outcome.status is MeasurementStatus.INVALID
