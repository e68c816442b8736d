"""Assigns processors to each part of a test setup, unless the scenario does."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace

from ringroad_lab.errors import ScenarioError
from ringroad_lab.method.message_size import StationSettings
from ringroad_lab.scenario.model import Cpus, Scenario


@dataclass(frozen=True)
class CpuLayout:
    """Processors of the parts of a test setup."""

    generator: frozenset[int]
    dut: frozenset[int]
    guests: tuple[frozenset[int], ...]
    """Processors of each guest or station."""


def lay_out_cpus(wanted: Cpus, usable: Set[int], queues: int, guests: int, *, is_dut_elsewhere: bool = False) -> CpuLayout:
    """Assign the processors. The generator never shares a processor with the device if there are two or more.

    The generator gets the first processor, and a second one if there are six or more. The device gets one for each queue, but leaves one
    for each guest. Guests get the rest, or the device's processors if none are left. If device and guests are on another machine, whose
    processors are unknown here, they get the requested processors.

    Raises:
        ScenarioError: a requested processor is not usable.
    """
    if is_dut_elsewhere:
        here = lay_out_cpus(Cpus(generator=wanted.generator), usable, queues, 0)
        return CpuLayout(here.generator, wanted.dut, tuple(wanted.guests for _ in range(guests)))
    missing = (wanted.generator | wanted.dut | wanted.guests) - usable
    if missing:
        raise ScenarioError(f"processors {sorted(missing)} are not usable here: usable are {sorted(usable)}")
    free = sorted(usable - wanted.generator - wanted.dut - wanted.guests)

    def take(count: int) -> frozenset[int]:
        taken = frozenset(free[:count])
        del free[:count]
        return taken

    generator = wanted.generator or take(2 if len(usable) >= 6 else 1) or frozenset({min(usable)})
    waiting_guests = 0 if wanted.guests else guests
    dut = wanted.dut or take(max(1, min(queues, len(free) - waiting_guests))) or generator
    pool = sorted(wanted.guests) or free or sorted(dut)
    return CpuLayout(generator, dut, tuple(frozenset(pool[guest::guests] or pool) for guest in range(guests)))


def lay_out_stations(wanted: Cpus, usable: Set[int], settings: StationSettings) -> CpuLayout:
    """Assign the processors of a device and of two stations. The device has the same one as beside a generator.

    Namespaces have a processor each where there are enough; guests, whose processes have several threads, have all that are left.

    Raises:
        ScenarioError: a requested processor is not usable.
    """
    layout = lay_out_cpus(wanted, usable, 1, 0)
    if settings.placement == "together":
        return replace(layout, guests=(layout.dut, layout.dut))
    left = usable - layout.dut
    if not left or (settings.placement == "stations-apart" and len(left) == 1):
        left = usable
    pool = sorted(wanted.guests) or sorted(left)[: 2 if settings.stations == "namespaces" else None]
    return replace(layout, guests=(frozenset(pool[::2]), frozenset(pool[1::2] or pool)))


def pin_cpus(scenario: Scenario, usable: Set[int], *, is_dut_elsewhere: bool) -> Scenario:
    """Return the scenario with its assigned processors filled in, so that it gets the same ones where fewer processors are usable.

    Raises:
        ScenarioError: a requested processor is not usable.
    """
    layout = lay_out_cpus(scenario.cpus, usable, scenario.most_queues, scenario.topology.guests, is_dut_elsewhere=is_dut_elsewhere)
    cpus = Cpus(generator=layout.generator, dut=layout.dut, guests=frozenset().union(*layout.guests))
    return scenario.model_copy(update={"cpus": cpus})
