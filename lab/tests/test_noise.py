"""The noise floor of a run's own measurements."""

from __future__ import annotations

import pytest

from fabricated_runs import fabricated_run
from ringroad_lab.noise import noise_floors
from ringroad_lab.record import Measurement, MeasurementStatus, RunRecord


def figure(measurement: Measurement) -> float:
    return measurement.outcome.metrics[measurement.outcome.headline].value


def of_one_kind(record: RunRecord) -> list[Measurement]:
    """Return the measurements of one device, method and frame size, by repetition."""
    first = record.measurements[0]
    kind = (first.dut, first.topology, first.method, first.frame)
    same = [m for m in record.measurements if (m.dut, m.topology, m.method, m.frame) == kind]
    return sorted(same, key=lambda m: m.repetition)


def test_repetitions_of_the_same_device_are_pairs() -> None:
    record = fabricated_run(repetitions=5)
    measured = of_one_kind(record)
    floors = noise_floors(record)
    floor = next(f for f in floors if (f.dut, f.method, f.frame_name) == (measured[0].dut, measured[0].method, measured[0].frame.name))
    assert floor.pairs == 2
    ratios = [figure(measured[1]) / figure(measured[0]), figure(measured[3]) / figure(measured[2])]
    # With so few pairs the interval covers all observed ratios, in both directions.
    most = max(*ratios, *(1 / ratio for ratio in ratios))
    assert floor.ratio_interval == pytest.approx((1 / most, most))


def test_each_topology_has_its_own_floor() -> None:
    record = fabricated_run(repetitions=2)
    measured = of_one_kind(record)
    others = [m.model_copy(update={"topology": "PVP", "number": 1000 + m.number}) for m in measured]
    floors = noise_floors(record.model_copy(update={"measurements": (*measured, *others)}))
    assert [(floor.topology, floor.pairs) for floor in floors] == [("P2P", 1), ("PVP", 1)]


def test_intended_pairs_have_precedence() -> None:
    record = fabricated_run(repetitions=4)
    measured = of_one_kind(record)
    intended = [m.model_copy(update={"is_noise_floor": True, "number": 1000 + m.number}) for m in measured[:2]]
    floors = noise_floors(record.model_copy(update={"measurements": (*measured, *intended)}))
    (floor,) = floors
    assert floor.pairs == 1


def test_without_pairs_or_figures_there_is_no_floor() -> None:
    record = fabricated_run(repetitions=2)
    measured = of_one_kind(record)
    assert noise_floors(record.model_copy(update={"measurements": (measured[0],)})) == ()
    bound = [m.model_copy(update={"outcome": m.outcome.model_copy(update={"status": MeasurementStatus.LOWER_BOUND})}) for m in measured]
    assert noise_floors(record.model_copy(update={"measurements": tuple(bound)})) == ()
