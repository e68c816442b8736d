"""The plan of a run: its measurements in order, the number of trials, and the time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ringroad_lab.cable.interface import CABLES, CableKind
from ringroad_lab.dut.interface import DUTS
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.guest.interface import GUESTS
from ringroad_lab.message_size.sweep import station_cable
from ringroad_lab.method.interface import METHODS, Method
from ringroad_lab.method.message_size import StationSettings
from ringroad_lab.method.throughput import ThroughputMethod, ThroughputSettings
from ringroad_lab.scenario.model import DutChoice, MethodChoice, Scenario
from ringroad_lab.scenario.schedule import Round, ScheduledMeasurement, schedule

# Time of a trial in addition to its duration: configuration, learning frames, settling of counters. 0.2 to 0.4 s on two busy processors.
TRIAL_OVERHEAD_S = 0.3
# Time of the generator's self test, for each kind of cable and each frame size.
SELF_TEST_S = 4.0


@dataclass(frozen=True)
class PlannedMeasurement:
    """One method, once, at one frame size."""

    method: str
    frame: FrameMix
    trials: int
    """An estimate: the length of a search is not known in advance."""
    expected_s: float


@dataclass(frozen=True)
class PlannedStart:
    """A device is started, measured and stopped."""

    scenario: Scenario
    dut: DutChoice
    repetition: int
    """Number from 0; for the noise floor, the number of the start of the same device."""
    is_noise_floor: bool
    """Whether it only measures the difference between two measurements of the same device."""
    measurements: tuple[PlannedMeasurement, ...]

    cables: tuple[CableKind, ...]
    """Cables between the device and the generator, or stations."""
    start_s: float
    """Expected time of starting, wiring and stopping the device and its guests, s."""

    @property
    def expected_s(self) -> float:
        """Expected time, s."""
        return self.start_s + sum(measurement.expected_s for measurement in self.measurements)


@dataclass(frozen=True)
class Plan:
    """The plan of a whole run."""

    starts: tuple[PlannedStart, ...]
    """Starts in the order of measuring."""
    self_test_s: float
    """Expected time of the generator's own tests, s."""
    deviations: tuple[str, ...]
    """Deviations of the methods from the RFCs."""

    @property
    def expected_s(self) -> float:
        """Expected time, s."""
        return self.self_test_s + sum(start.expected_s for start in self.starts)

    @property
    def measurements(self) -> int:
        """The number of measurements."""
        return sum(len(start.measurements) for start in self.starts)

    @property
    def trials(self) -> int:
        """The estimated number of trials."""
        return sum(measurement.trials for start in self.starts for measurement in start.measurements)


def make_method(choice: MethodChoice) -> Method:
    """Make a method of a checked scenario, from the available methods."""
    kind = METHODS[choice.name]
    return kind(kind.settings_type.model_validate(choice.settings))


def measuring_s(method: Method, trial_overhead_s: float, *, knows_throughput: bool) -> float:
    """Return the expected time of a measurement, s: without the search for the throughput if it was found just before."""
    search = getattr(method.settings, "throughput", None)
    expected_s = method.expected_s(trial_overhead_s)
    if knows_throughput and isinstance(search, ThroughputSettings):
        expected_s -= search.expected_s(trial_overhead_s)
    return expected_s


def plan(scenarios: Sequence[Scenario]) -> Plan:
    """Plan checked scenarios, one after the other."""
    transports: set[tuple[str, str]] = set()
    for scenario in scenarios:
        if all(METHODS[method.name].is_between_stations for method in scenario.methods):
            continue
        kinds = {scenario.physical_of(dut) for dut in scenario.duts}
        transports |= {(kind, frame.name) for kind in kinds if not CABLES[kind].joins_cards for frame in scenario.frames}
    starts: list[PlannedStart] = []
    for turn in schedule(scenarios):
        methods = {choice.name: make_method(choice) for choice in turn.scenario.methods}
        measurements = tuple(_planned(turn.measurements, methods))
        cables = tuple(dict.fromkeys(_cable(turn, each, methods) for each in turn.measurements))
        start_s = DUTS[turn.dut.driver].start_s
        if turn.scenario.guest:
            start_s += turn.scenario.topology.guests * GUESTS[turn.scenario.guest].start_s
        starts.append(PlannedStart(turn.scenario, turn.dut, turn.repetition, turn.is_noise_floor, measurements, cables, start_s))
    return Plan(tuple(starts), SELF_TEST_S * len(transports), deviations(scenarios))


def _cable(turn: Round, each: ScheduledMeasurement, methods: Mapping[str, Method]) -> CableKind:
    settings = methods[each.method.name].settings
    if isinstance(settings, StationSettings):
        return station_cable(turn.dut.driver, settings, turn.scenario.physical_of(turn.dut))
    return turn.scenario.physical_of(turn.dut)


def _planned(scheduled: Sequence[ScheduledMeasurement], methods: Mapping[str, Method]) -> Iterator[PlannedMeasurement]:
    with_throughput: set[str] = set()
    for each in scheduled:
        method = methods[each.method.name]
        knows_throughput = each.frame.name in with_throughput
        # A method reports only its time. One more second per trial adds as many seconds as there are trials.
        bare_s, longer_s, expected_s = (
            measuring_s(method, overhead_s, knows_throughput=knows_throughput) for overhead_s in (0.0, 1.0, TRIAL_OVERHEAD_S)
        )
        yield PlannedMeasurement(each.method.name, each.frame, max(1, round(longer_s - bare_s)), expected_s)
        if isinstance(method, ThroughputMethod) and method.is_lossless:
            with_throughput.add(each.frame.name)


def expected_s(scenarios: Sequence[Scenario], measured: set[int]) -> Mapping[int, float]:
    """Return the expected duration of each missing measurement, s, by its number."""
    expected: dict[int, float] = {}
    planned = plan(scenarios)
    for start, turn in zip(planned.starts, schedule(scenarios), strict=True):
        # The time of a device's start is divided among its measurements, the time of the generator's self-test among all measurements.
        overhead_s = (start.expected_s - sum(each.expected_s for each in start.measurements)) / len(start.measurements)
        overhead_s += planned.self_test_s / planned.measurements
        for scheduled, each in zip(turn.measurements, start.measurements, strict=True):
            if scheduled.number not in measured:
                expected[scheduled.number] = each.expected_s + overhead_s
    return expected


def deviations(scenarios: Sequence[Scenario]) -> tuple[str, ...]:
    """Return the deviations of the methods from the RFCs, each once."""
    methods = [make_method(choice) for scenario in scenarios for dut in scenario.duts for choice in scenario.of(dut).methods]
    return tuple(dict.fromkeys(sentence for method in methods for sentence in method.deviations()))
