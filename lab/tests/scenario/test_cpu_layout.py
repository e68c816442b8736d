"""Assignment of processors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringroad_lab.errors import ScenarioError
from ringroad_lab.method.message_size import StationKind, StationPlacement, StationSettings
from ringroad_lab.scenario.cpu_layout import CpuLayout, lay_out_cpus, lay_out_stations
from ringroad_lab.scenario.model import Cpus


def cpus(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


@pytest.mark.parametrize(
    ("usable", "queues", "guests", "layout"),
    [
        (1, 1, 0, CpuLayout(cpus(0), cpus(0), ())),
        (2, 1, 0, CpuLayout(cpus(0), cpus(1), ())),
        (2, 4, 2, CpuLayout(cpus(0), cpus(1), (cpus(1), cpus(1)))),
        (3, 1, 1, CpuLayout(cpus(0), cpus(1), (cpus(2),))),
        (4, 2, 1, CpuLayout(cpus(0), cpus(1, 2), (cpus(3),))),
        (8, 2, 2, CpuLayout(cpus(0, 1), cpus(2, 3), (cpus(4, 6), cpus(5, 7)))),
    ],
)
def test_processors_are_assigned(usable: int, queues: int, guests: int, layout: CpuLayout) -> None:
    assert lay_out_cpus(Cpus(), set(range(usable)), queues, guests) == layout


def test_requested_processors_are_used() -> None:
    wanted = Cpus(generator=cpus(3), dut=cpus(1), guests=cpus(0, 2))
    assert lay_out_cpus(wanted, {0, 1, 2, 3}, 1, 2) == CpuLayout(cpus(3), cpus(1), (cpus(0), cpus(2)))
    with pytest.raises(ScenarioError, match=r"processors \[9\] are not usable here"):
        lay_out_cpus(Cpus(dut=cpus(9)), {0, 1}, 1, 0)


def test_processors_of_another_machine_are_the_requested_ones() -> None:
    wanted = Cpus(dut=cpus(9), guests=cpus(10))
    assert lay_out_cpus(wanted, {0, 1}, 1, 1, is_dut_elsewhere=True) == CpuLayout(cpus(0), cpus(9), (cpus(10),))


def stations(placement: StationPlacement, kind: StationKind = "namespaces") -> StationSettings:
    return StationSettings(placement=placement, stations=kind)


@pytest.mark.parametrize(
    ("usable", "settings", "dut", "first", "second"),
    [
        (1, stations("together"), cpus(0), cpus(0), cpus(0)),
        (1, stations("device-apart"), cpus(0), cpus(0), cpus(0)),
        (1, stations("stations-apart"), cpus(0), cpus(0), cpus(0)),
        (2, stations("together"), cpus(1), cpus(1), cpus(1)),
        (2, stations("device-apart"), cpus(1), cpus(0), cpus(0)),
        (2, stations("stations-apart"), cpus(1), cpus(0), cpus(1)),
        (3, stations("together"), cpus(1), cpus(1), cpus(1)),
        (3, stations("device-apart"), cpus(1), cpus(0), cpus(2)),
        (3, stations("stations-apart"), cpus(1), cpus(0), cpus(2)),
        (8, stations("stations-apart"), cpus(2), cpus(0), cpus(1)),
        (8, stations("stations-apart", "guests"), cpus(2), cpus(0, 3, 5, 7), cpus(1, 4, 6)),
    ],
)
def test_stations_and_their_device_are_placed(
    usable: int, settings: StationSettings, dut: frozenset[int], first: frozenset[int], second: frozenset[int]
) -> None:
    layout = lay_out_stations(Cpus(), set(range(usable)), settings)
    assert (layout.dut, layout.guests) == (dut, (first, second))
    # A run that isolates its processors lays them out again among these alone.
    pinned = Cpus(generator=layout.generator, dut=layout.dut)
    assert lay_out_stations(pinned, layout.generator | dut | first | second, settings) == layout


def test_requested_processors_of_stations_are_used() -> None:
    wanted = Cpus(dut=cpus(3), guests=cpus(1, 2))
    assert lay_out_stations(wanted, {0, 1, 2, 3}, stations("stations-apart")).guests == (cpus(1), cpus(2))
    assert lay_out_stations(wanted, {0, 1, 2, 3}, stations("together")).guests == (cpus(3), cpus(3))


@given(usable=st.sets(st.integers(0, 63), min_size=1), queues=st.integers(1, 16), guests=st.integers(0, 2))
def test_each_part_has_a_processor_and_the_generator_its_own(usable: set[int], queues: int, guests: int) -> None:
    layout = lay_out_cpus(Cpus(), usable, queues, guests)
    parts = [layout.generator, layout.dut, *layout.guests]
    assert len(parts) == 2 + guests
    assert all(part and part <= usable for part in parts)
    if len(usable) > 1:
        assert not any(layout.generator & part for part in parts[1:])
