"""Every method on devices and generators at the edge: it ends soon, with a status that fits and a reason."""

from __future__ import annotations

import pytest

from ringroad_lab.errors import GeneratorError
from ringroad_lab.generator.interface import Generator
from ringroad_lab.method.interface import METHODS, Method
from ringroad_lab.method.learning_rate import LearningRateMethod, LearningRateSettings
from ringroad_lab.method.soak import SoakSettings
from ringroad_lab.record import MeasurementStatus, Outcome
from ringroad_lab.trial import AddressPlan, TrialRequest, TrialResult
from simulated_bench import MAX_FPS, Bench, Scripted
from simulated_generator import FullTable, SimulatedDut, SimulatedGenerator

# They need their entries in the device's flow table, and send in one direction only: they have their own tests.
OF_FLOW_TABLES = {"flow-counts", "tuple-space-explosion"}
TRIAL_METHODS = sorted(name for name, method in METHODS.items() if not method.is_between_stations and name not in OF_FLOW_TABLES)
each_method = pytest.mark.parametrize("name", TRIAL_METHODS)
# The flow table methods send frames from port a to b only.
each_two_way_method = pytest.mark.parametrize(
    "name", [name for name in TRIAL_METHODS if name not in ("flow-counts", "tuple-space-explosion")]
)


def make(name: str) -> Method:
    return METHODS[name](SoakSettings(duration_s=50) if name == "soak" else METHODS[name].settings_type())


def measure(name: str, bench: Bench) -> Outcome:
    outcome = make(name).measure(bench.context)
    assert len(bench.trials) < 500
    assert outcome.status is MeasurementStatus.OK or outcome.reasons
    assert not outcome.headline or outcome.headline in outcome.metrics
    assert len(set(outcome.reasons)) == len(outcome.reasons)
    return outcome


@each_method
@pytest.mark.parametrize("max_fps", [0.0, 0.3])
@pytest.mark.parametrize("throughput_fps", [None, 1.0])
def test_less_than_one_frame_per_second_is_invalid(name: str, max_fps: float, throughput_fps: float | None) -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=2)), max_fps=max_fps, throughput_fps=throughput_fps)
    outcome = measure(name, bench)
    assert outcome.status is MeasurementStatus.INVALID
    assert "less than one frame" in outcome.reasons[0]
    assert not bench.trials


@each_method
@pytest.mark.parametrize("capacity_fps", [0.5, 2.0, 200.0])
@pytest.mark.parametrize("max_fps", [1.0, 3.0, 3.7, 40.0])
def test_measurements_at_a_few_frames_per_second_end(name: str, capacity_fps: float, max_fps: float) -> None:
    dut = SimulatedDut(capacity_fps=capacity_fps, table_size=2048, full_table=FullTable.FORGETS_OLDEST)
    bench = Bench(SimulatedGenerator(dut), max_fps=max_fps)
    outcome = measure(name, bench)
    if name == "throughput" and capacity_fps > max_fps:
        assert outcome.metrics["throughput_fps"].value == int(max_fps)


@each_method
@pytest.mark.parametrize(
    "generator",
    [
        SimulatedGenerator(SimulatedDut(capacity_fps=MAX_FPS), ceiling_fps=0.0),
        SimulatedGenerator(SimulatedDut(capacity_fps=0.0)),
        SimulatedGenerator(SimulatedDut(capacity_fps=50.0)),
        SimulatedGenerator(SimulatedDut(capacity_fps=2 * MAX_FPS, random_loss_ratio=1e-6)),
        SimulatedGenerator(SimulatedDut(capacity_fps=400_000, duplicate_ratio=0.5, random_loss_ratio=0.001)),
        SimulatedGenerator(SimulatedDut(capacity_fps=400_000, table_size=1)),
        SimulatedGenerator(SimulatedDut(capacity_fps=2 * MAX_FPS, table_size=2048), ceiling_fps=300_000, is_stubborn=True),
    ],
    ids=["ceiling 0", "capacity 0", "capacity below the lowest rate", "one in a million lost", "duplicates", "one address", "stubborn"],
)
def test_odd_devices_end_with_a_reason(name: str, generator: SimulatedGenerator) -> None:
    bench = Bench(generator)
    outcome = measure(name, bench)
    if generator.dut.capacity_fps == 0:
        assert outcome.status is MeasurementStatus.INVALID
        assert "the device forwards nothing, not even" in outcome.reasons[0]


@each_two_way_method
@pytest.mark.parametrize("throughput_fps", [None, 400_000])
def test_a_device_that_is_dead_in_one_direction_has_no_result(name: str, throughput_fps: float | None) -> None:
    def cut(_: int, result: TrialResult) -> TrialResult:
        there, *back = result.directions
        return result.model_copy(update={"directions": (there, *(way.model_copy(update={"received_frames": 0}) for way in back))})

    bench = Bench(Scripted(SimulatedDut(capacity_fps=2 * MAX_FPS, table_size=10), cut), throughput_fps=throughput_fps)
    outcome = measure(name, bench)
    assert outcome.status is MeasurementStatus.INVALID
    assert "forwards nothing from port b to a" in outcome.reasons[0]
    assert outcome.metrics == {}
    assert len(bench.trials) < 60


class Failing(SimulatedGenerator):
    """Fails at its third trial."""

    def trial(self, request: TrialRequest) -> TrialResult:
        """Run a trial, or raise."""
        if self.trials == 2:
            raise GeneratorError("its port is gone")
        return super().trial(request)


@each_method
def test_a_generator_that_fails_ends_the_measurement_with_its_error(name: str) -> None:
    bench = Bench(Failing(SimulatedDut(capacity_fps=400_000, table_size=100)))
    with pytest.raises(GeneratorError, match="its port is gone"):
        make(name).measure(bench.context)
    assert len(bench.trials) == 2


def overloaded_to_silence(number: int, result: TrialResult) -> TrialResult:
    """Forward nothing at the first trial, as a device in livelock."""
    silent = tuple(way.model_copy(update={"received_frames": 0}) for way in result.directions)
    return result.model_copy(update={"directions": silent}) if number == 0 else result


def test_recovery_from_a_livelock_has_a_result() -> None:
    bench = Bench(Scripted(SimulatedDut(capacity_fps=500_000, recovery_s=3.0), overloaded_to_silence), throughput_fps=500_000)
    outcome = measure("recovery", bench)
    assert outcome.status is MeasurementStatus.OK
    assert outcome.metrics["overload_loss_ratio"].value == 1.0
    assert outcome.metrics["recovery_at_most_s"].value >= 3.0


def test_a_device_that_dies_from_the_overload_has_no_recovery_time() -> None:
    generator = SimulatedGenerator(SimulatedDut(capacity_fps=500_000, dies_at_trial=1))
    assert measure("recovery", Bench(generator, throughput_fps=500_000)).status is MeasurementStatus.INVALID


class Forgetful(Generator):
    """Connected to a device that learns one address at a time, and forwards to all others."""

    def __init__(self) -> None:
        """Start without trials."""
        self._inner = SimulatedGenerator(SimulatedDut(capacity_fps=2 * MAX_FPS))

    def version(self) -> str:
        """Return a name."""
        return "forgetful"

    def trial(self, request: TrialRequest) -> TrialResult:
        """Filter the frames to a single station."""
        result = self._inner.trial(request)
        if request.load.addresses is AddressPlan.RETURNED and request.load.stations == 1:
            silent = tuple(way.model_copy(update={"received_frames": 0}) for way in result.directions)
            return result.model_copy(update={"directions": silent})
        return result


def test_a_long_learning_search_does_not_run_out_of_addresses() -> None:
    settings = LearningRateSettings(stations=100_000, loss_repeats=20, minimum_fps=1, resolution=0.001)
    outcome = LearningRateMethod(settings).measure(Bench(Forgetful()).context)
    assert outcome.status is MeasurementStatus.INCONCLUSIVE
    assert "did not learn all" in outcome.reasons[0]


@pytest.mark.parametrize("name", ["throughput", "mlrsearch"])
def test_every_load_has_at_least_one_frame(name: str) -> None:
    bench = Bench(SimulatedGenerator(SimulatedDut(capacity_fps=0.5)), max_fps=100.0)
    measure(name, bench)
    assert all(trial.sent_frames for trial in bench.trials)
