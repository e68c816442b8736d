"""The share of processors for each part, unless the scenario chooses."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from ringroad_lab.errors import ScenarioError
from ringroad_lab.scenario.model import Cpus, Scenario


@dataclass(frozen=True)
class CpuLayout:
    """Processors of the parts of a test bed."""

    generator: frozenset[int]
    dut: frozenset[int]
    guests: tuple[frozenset[int], ...]
    """Of each guest."""


def lay_out_cpus(wanted: Cpus, usable: Set[int], queues: int, guests: int, *, is_dut_elsewhere: bool = False) -> CpuLayout:
    """Share the processors out: the generator never shares one with the device where there are two.

    The generator has the first, and a second where there are six or more; the device one for each queue, while that leaves one for
    each guest; guests what is left, and where nothing is left the device's. Where device and guests are on another machine, whose
    processors are not known here, they have those that are asked for.

    Raises:
        ScenarioError: a processor that is asked for is not usable.
    """
    if is_dut_elsewhere:
        here = lay_out_cpus(Cpus(generator=wanted.generator), usable, queues, 0)
        return CpuLayout(here.generator, wanted.dut, tuple(wanted.guests for _ in range(guests)))
    missing = (wanted.generator | wanted.dut | wanted.guests) - usable
    if missing:
        raise ScenarioError(f"processors {sorted(missing)} are not usable here: there are {sorted(usable)}")
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


def pin_cpus(scenario: Scenario, usable: Set[int], *, is_dut_elsewhere: bool) -> Scenario:
    """Return a scenario that names the processors that it would be given, so that it is given no others where fewer are usable.

    Raises:
        ScenarioError: a processor that is asked for is not usable.
    """
    layout = lay_out_cpus(scenario.cpus, usable, scenario.queues, scenario.topology.guests, is_dut_elsewhere=is_dut_elsewhere)
    cpus = Cpus(generator=layout.generator, dut=layout.dut, guests=frozenset().union(*layout.guests))
    return scenario.model_copy(update={"cpus": cpus})
