"""Checks that a bed has not degraded: compares the load that its generator carries alone with earlier runs."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from statistics import median

from sqlalchemy import select

from ringroad_lab.errors import BedError
from ringroad_lab.fleet import tables
from ringroad_lab.fleet.inventory import BedSettings
from ringroad_lab.record import GeneratorCeiling
from ringroad_lab.report.quantity import quantity
from ringroad_lab.scenario.model import Scenario
from ringroad_lab.store.result_store import ResultStore

FEWEST_EARLIER = 3
"""Fewest earlier values for a comparison: a single value can itself be far off."""
_MOST_EARLIER = 20
# The settings of a scenario that the generator's ceiling depends on, besides transport and frame size.
_DEPENDS_ON = {"generator", "bidirectional", "flows", "vlans", "vnis", "queues", "cpus", "huge_pages"}


class Calibration:
    """Calibration of a bed before one run."""

    def __init__(
        self,
        store: ResultStore,
        name: str,
        bed: BedSettings,
        run_id: str,
        scenarios: Sequence[Scenario],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the store, the bed, and the run that follows."""
        self._store = store
        self._name = name
        self._bed = bed
        self._run_id = run_id
        self._load_digest = load_digest(scenarios)
        self._clock = clock
        self._done: set[tuple[str, str]] = set()

    def check(self, ceiling: GeneratorCeiling) -> None:
        """Compare the load that the generator of the bed carries alone with earlier loads, and store it.

        Ignores a load that this run has stored before, and a load that was measured again during the run (`ceiling.cause`).

        Raises:
            BedError: the load is too low.
        """
        key = (ceiling.transport, ceiling.frame.name)
        if ceiling.cause or key in self._done:
            return
        self._done.add(key)
        table = tables.BedCalibration
        with self._store.writing() as session:
            same = {"bed": self._name, "load_digest": self._load_digest, "transport": key[0], "frame": key[1], "is_good": True}
            query = select(table.ceiling_fps).filter_by(**same).order_by(table.id.desc()).limit(_MOST_EARLIER)
            problem = self._problem(ceiling, session.scalars(query).all())
            session.add(
                table(
                    **{**same, "is_good": not problem},
                    run_id=self._run_id,
                    ceiling_fps=ceiling.ceiling_fps,
                    measured_at=self._clock(),
                )
            )
        if problem:
            raise BedError(f"bed {self._name} failed its calibration: {problem}")

    def _problem(self, ceiling: GeneratorCeiling, earlier: Sequence[float]) -> str:
        frame = ceiling.frame.name
        measured = f"the generator alone carries {quantity(ceiling.ceiling_fps, 'frames/s')} of {frame} over {ceiling.transport}"
        least = self._bed.calibration_minimum_fps.get(frame, 0.0)
        if ceiling.ceiling_fps < least:
            return f"{measured}, less than the required {quantity(least, 'frames/s')} (calibration_minimum_fps)"
        if len(earlier) >= FEWEST_EARLIER and ceiling.ceiling_fps < median(earlier) * (1 - self._bed.calibration_limit):
            usual = quantity(median(earlier), "frames/s")
            limit = f"{100 * self._bed.calibration_limit:g} % (calibration_limit)"
            return f"{measured}, but carried {usual} before (median of {len(earlier)}): a drop of more than {limit}"
        return ""


def load_digest(scenarios: Sequence[Scenario]) -> str:
    """Return a digest that differs between scenarios whose generators can have different ceilings."""
    relevant = []
    for scenario in scenarios:
        for dut in scenario.duts:
            generator = scenario.generator_of(dut).model_dump(mode="json")
            relevant.append([scenario.of(dut).model_dump(mode="json", include=_DEPENDS_ON), generator])
    return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()
