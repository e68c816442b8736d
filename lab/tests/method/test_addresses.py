"""RFC 2889 address caching and learning of simulated devices."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringroad_lab.method.address_caching import AddressCachingMethod, AddressCachingSettings
from ringroad_lab.method.learning_rate import LearningRateMethod, LearningRateSettings
from ringroad_lab.record import MeasurementStatus, Outcome
from ringroad_lab.trial import AddressPlan, TrialRequest, TrialResult
from simulated_bench import MAX_FPS, Bench, Scripted
from simulated_generator import FullTable, SimulatedDut, SimulatedGenerator


def cache(dut: SimulatedDut, **chosen: int) -> Outcome:
    """Measure the address caching capacity."""
    return AddressCachingMethod(AddressCachingSettings(**chosen)).measure(Bench(SimulatedGenerator(dut)).context)


def learn(dut: SimulatedDut, **chosen: int) -> Outcome:
    """Measure the learning rate."""
    return LearningRateMethod(LearningRateSettings(**chosen)).measure(Bench(SimulatedGenerator(dut)).context)


@settings(max_examples=25)
@given(table_size=st.integers(2, 1000), full_table=st.sampled_from(FullTable))
def test_table_size_is_found_exactly(table_size: int, full_table: FullTable) -> None:
    outcome = cache(SimulatedDut(capacity_fps=MAX_FPS, table_size=table_size, full_table=full_table), max_stations=1024)
    assert outcome.status is MeasurementStatus.OK
    assert outcome.metrics["address_cache_addresses"].value == table_size


def test_a_table_beyond_the_tried_sizes_is_a_lower_bound() -> None:
    outcome = cache(SimulatedDut(capacity_fps=MAX_FPS, table_size=5000), max_stations=1000)
    assert outcome.status is MeasurementStatus.LOWER_BOUND
    assert outcome.metrics["address_cache_addresses"].value == 1000


@given(learning_fps=st.floats(500, 900_000), resolution=st.floats(0.01, 0.3))
def test_learning_rate_is_found_within_the_resolution(learning_fps: float, resolution: float) -> None:
    dut = SimulatedDut(capacity_fps=MAX_FPS, table_size=8192, full_table=FullTable.FORGETS_OLDEST, learning_fps=learning_fps)
    outcome = LearningRateMethod(LearningRateSettings(resolution=resolution)).measure(Bench(SimulatedGenerator(dut)).context)
    assert outcome.status is MeasurementStatus.OK
    # Half an address of 256 above its learning rate still fits.
    assert learning_fps * (1 - resolution) - 1 <= outcome.metrics["address_learning_fps"].value <= learning_fps * (1 + 1 / 256)


def test_learning_at_the_greatest_rate_is_a_lower_bound() -> None:
    outcome = learn(SimulatedDut(capacity_fps=MAX_FPS, table_size=8192))
    assert outcome.status is MeasurementStatus.LOWER_BOUND
    assert outcome.metrics["address_learning_fps"].value == MAX_FPS


def test_full_table_is_not_reported_as_a_slow_learner() -> None:
    outcome = learn(SimulatedDut(capacity_fps=MAX_FPS, table_size=100))
    assert outcome.status is MeasurementStatus.INCONCLUSIVE
    assert "fewer stations" in outcome.reasons[0]


@pytest.mark.parametrize("measure", [cache, learn])
def test_device_that_does_not_learn_has_no_figure(measure: object) -> None:
    assert callable(measure)
    outcome = measure(SimulatedDut(capacity_fps=MAX_FPS, table_size=None))
    assert outcome.status is MeasurementStatus.INCONCLUSIVE
    assert "learns no addresses" in outcome.reasons[0]


@pytest.mark.parametrize("measure", [cache, learn])
@pytest.mark.parametrize("dies_at_trial", [0, 1, 2, 4, 5])
def test_dead_device_does_not_appear_to_know_every_address(measure: object, dies_at_trial: int) -> None:
    assert callable(measure)
    outcome = measure(SimulatedDut(capacity_fps=MAX_FPS, table_size=500, full_table=FullTable.FORGETS_OLDEST, dies_at_trial=dies_at_trial))
    assert outcome.status in (MeasurementStatus.INVALID, MeasurementStatus.INCONCLUSIVE)
    assert outcome.metrics == {}


def test_a_device_that_drops_unknown_addresses_has_no_figure() -> None:
    def drop_returned(_: int, result: TrialResult) -> TrialResult:
        if result.request.load.addresses is not AddressPlan.RETURNED:
            return result
        return result.model_copy(update={"directions": tuple(d.model_copy(update={"received_frames": 0}) for d in result.directions)})

    bench = Bench(Scripted(SimulatedDut(capacity_fps=MAX_FPS, table_size=500), drop_returned))
    outcome = AddressCachingMethod(AddressCachingSettings()).measure(bench.context)
    assert outcome.status is MeasurementStatus.INCONCLUSIVE
    assert "does not flood" in outcome.reasons[0]


@pytest.mark.parametrize("purpose", ["ask", "teach"])
def test_occasional_frame_loss_does_not_change_the_result(purpose: str) -> None:
    # Every other query or teaching burst is lost completely: nothing is flooded, or nothing is learned.
    class Lossy(SimulatedGenerator):
        lost = False

        def trial(self, request: TrialRequest) -> TrialResult:
            if request.purpose != purpose:
                return super().trial(request)
            self.lost = not self.lost
            if not self.lost:
                return super().trial(request)
            # Frames that are lost before the device teach nothing.
            fixed = request.load.model_copy(update={"addresses": AddressPlan.FIXED})
            result = super().trial(request.model_copy(update={"load": fixed}))
            counts = tuple(direction.model_copy(update={"received_frames": 0}) for direction in result.directions)
            return result.model_copy(update={"request": request, "directions": counts})

    outcome = AddressCachingMethod(AddressCachingSettings(max_stations=1000)).measure(
        Bench(Lossy(SimulatedDut(capacity_fps=MAX_FPS, table_size=500, full_table=FullTable.FORGETS_OLDEST))).context
    )
    assert outcome.metrics["address_cache_addresses"].value == 500


def test_generator_that_cannot_send_has_no_figure() -> None:
    generator = SimulatedGenerator(SimulatedDut(capacity_fps=MAX_FPS, table_size=500), ceiling_fps=10)
    outcome = AddressCachingMethod(AddressCachingSettings()).measure(Bench(generator).context)
    assert outcome.status is MeasurementStatus.INVALID
