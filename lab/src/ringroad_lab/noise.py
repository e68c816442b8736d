"""The differences between measurements of the same device within a run."""

from __future__ import annotations

from collections.abc import Iterable

from ringroad_lab.record import Measurement, MeasurementStatus, NoiseFloor, RunRecord
from ringroad_lab.statistics.noise_floor import noise_floor_interval


def noise_floors(record: RunRecord) -> tuple[NoiseFloor, ...]:
    """Return the noise floor of each metric of a run that counts in comparisons.

    If the run measured a device against itself on purpose, those pairs are used. Otherwise every two repetitions of the same device are a
    pair. Their noise includes the drift of a whole repetition, and so is rather too high than too low.
    """
    groups: dict[tuple[str, str, str, str, str], list[Measurement]] = {}
    for measurement in record.measurements:
        outcome = measurement.outcome
        # A lower bound is the generator's figure, not the device's.
        if outcome.status in (MeasurementStatus.OK, MeasurementStatus.DISTURBED):
            for name in {outcome.headline, *outcome.compared} & outcome.metrics.keys():
                key = (measurement.dut, measurement.method, measurement.frame.name, name, measurement.topology)
                groups.setdefault(key, []).append(measurement)
    floors = []
    for (dut, method, frame, metric, topology), measurements in groups.items():
        intended = [m for m in measurements if m.is_noise_floor]
        pairs = list(_pairs(intended or measurements, metric))
        if pairs:
            first, second = zip(*pairs, strict=True)
            floors.append(
                NoiseFloor(
                    dut=dut,
                    method=method,
                    frame_name=frame,
                    metric=metric,
                    topology=topology,
                    pairs=len(pairs),
                    ratio_interval=noise_floor_interval(first, second),
                )
            )
    return tuple(floors)


def _pairs(measurements: Iterable[Measurement], metric: str) -> Iterable[tuple[float, float]]:
    """Yield the figures of repetitions 0 and 1, 2 and 3, ..., if both have a figure."""
    figures = {m.repetition: m.outcome.metrics[metric] for m in measurements if metric in m.outcome.metrics}
    by_repetition = {repetition: max(figure.value, figure.resolution) for repetition, figure in figures.items()}
    for repetition, value in by_repetition.items():
        later = by_repetition.get(repetition + 1)
        if repetition % 2 == 0 and later is not None and value > 0 and later > 0:
            yield value, later
