"""The processors that a run uses on this machine, isolated until the run ends."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ringroad_lab.method.message_size import StationMethod
from ringroad_lab.record import RunRecord
from ringroad_lab.sandbox.isolation import isolated
from ringroad_lab.scenario.cpu_layout import CpuLayout, lay_out_cpus, lay_out_stations, pin_cpus
from ringroad_lab.scenario.library import LOCAL_HOST
from ringroad_lab.scenario.model import Scenario
from ringroad_lab.scenario.plan import make_method


@dataclass(frozen=True)
class IsolatedProcessors:
    """Processors that are isolated as far as possible."""

    facts: dict[str, str]
    warnings: tuple[str, ...]
    enter: Path | None
    """Control group that the measuring process enters; None: there is none."""
    usable: frozenset[int]
    """Processors that were available to the run before the isolation."""

    def note(self, record: RunRecord) -> RunRecord:
        """Return the record with the result of the isolation."""
        update = {
            "facts": {**record.facts, "isolation of this run": self.facts},
            "warnings": tuple(dict.fromkeys((*record.warnings, *self.warnings))),
        }
        return record.model_copy(update=update)

    def pin(self, scenarios: Sequence[Scenario]) -> tuple[Scenario, ...]:
        """Return the scenarios for the measuring process."""
        return _pinned(scenarios, self.usable) if self.enter else tuple(scenarios)


@contextmanager
def isolated_processors(scenarios: Sequence[Scenario]) -> Iterator[IsolatedProcessors]:
    """Isolate the processors of a run until the end of the block."""
    usable = frozenset(os.sched_getaffinity(0))
    used: frozenset[int] = frozenset()
    for cpus in (each.cpus for each in _pinned(scenarios, usable)):
        used |= cpus.generator if _is_elsewhere(scenarios) else cpus.generator | cpus.dut | cpus.guests
    used = used.union(*station_cpus(scenarios, usable).values())
    with isolated(scenarios[0].isolation, used) as isolation:
        yield IsolatedProcessors(isolation.facts, isolation.refused(), isolation.enter, usable)


def layout_of_run(scenarios: Sequence[Scenario]) -> CpuLayout:
    """Return the processors of each part of a run, for its facts."""
    scenario = scenarios[0]
    return lay_out_cpus(
        scenario.cpus,
        os.sched_getaffinity(0),
        scenario.most_queues,
        max(each.topology.guests for each in scenarios),
        is_dut_elsewhere=_is_elsewhere(scenarios),
    )


def station_cpus(scenarios: Sequence[Scenario], usable: Set[int]) -> dict[str, frozenset[int]]:
    """Return the processors of the stations of all methods of a run, by station; empty without such methods."""
    used: dict[str, frozenset[int]] = {}
    for scenario in scenarios:
        for method in map(make_method, scenario.methods):
            if isinstance(method, StationMethod):
                for number, cpus in enumerate(lay_out_stations(scenario.cpus, usable, method.settings).guests, 1):
                    used[f"station{number}"] = used.get(f"station{number}", frozenset()) | cpus
    return used


def _is_elsewhere(scenarios: Sequence[Scenario]) -> bool:
    return any(dut.host != LOCAL_HOST for scenario in scenarios for dut in scenario.duts)


def _pinned(scenarios: Sequence[Scenario], usable: frozenset[int]) -> tuple[Scenario, ...]:
    return tuple(pin_cpus(each, usable, is_dut_elsewhere=_is_elsewhere(scenarios)) for each in scenarios)
