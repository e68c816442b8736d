"""States which device has the highest figure if the samples decide the order; else what would decide it."""

from __future__ import annotations

from statistics import median

from ringroad_lab.comparison import compare_labels
from ringroad_lab.disturbances import tally_disturbances
from ringroad_lab.frame_size import FrameMix
from ringroad_lab.grouping import grouped
from ringroad_lab.record import DutRecord, Measurement, MeasurementStatus, RunRecord
from ringroad_lab.report.quantity import percent_change, quantity
from ringroad_lab.statistics.verdict import MetricComparison, Verdict


def rank(record: RunRecord, topology: str, method: str, frame: FrameMix, metric: str, title: str) -> str:
    """Return the order of the devices for a method and frame size, as part of a sentence.

    A device is called the highest only if no trial behind the figures was disturbed, and if the comparison with each other device shows
    a difference. If only some of the comparisons show one, these are stated.
    """
    kept = [
        _with_one_metric(m, metric) for m in record.measurements if _matches(m, topology, method, frame) and metric in m.outcome.metrics
    ]
    by_dut = grouped(kept, lambda m: m.dut)
    unit = kept[0].outcome.metrics[metric].unit
    medians = {dut: median(m.outcome.metrics[metric].value for m in same) for dut, same in by_dut.items()}
    bounds = {m.dut for m in kept if m.outcome.status is MeasurementStatus.LOWER_BOUND}
    figures = {dut: f"{'at least ' if dut in bounds else ''}{quantity(value, unit)}" for dut, value in medians.items()}
    best, *others = sorted(medians, key=lambda dut: -medians[dut])
    if not others:
        return f"{best} has {figures[best]}"
    whole = ", ".join(f"{dut} {figures[dut]}" for dut in (best, *others))
    tally = tally_disturbances(watched for m in kept for watched in m.watched)
    if tally.left:
        return (
            f"the order of the devices by {title} is not decided ({whole}): {tally.describe()}; a quieter machine, `isolation`, or more "
            f"`disturbance.extra_trials` would decide it"
        )
    # A run that was killed has no record of some devices.
    devices = tuple(DutRecord(label=dut, driver=dut) for dut in medians)
    only = record.model_copy(update={"measurements": tuple(kept), "duts": devices})
    found = {dut: _comparison(only, dut, best, metric) for dut in others}
    open_duts = [dut for dut, comparison in found.items() if comparison.verdict not in (Verdict.IMPROVEMENT, Verdict.REGRESSION)]
    if open_duts:
        undecided = grouped(open_duts, lambda dut: found[dut].reason or found[dut].verdict)
        reasons = "; ".join(f"{best} compared with {' and '.join(duts)}: {reason}" for reason, duts in undecided.items())
        lower = [dut for dut in others if dut not in open_duts]
        if not lower:
            return f"the order of the devices by {title} is not decided ({whole}); {reasons}"
        # Both are said: a difference between two devices does not depend on the others.
        return f"{best} has a higher {title} than {' and '.join(lower)}, and the rest of the order is not decided ({whole}); {reasons}"
    nearest = found[others[0]]
    low, high = nearest.interval or (1.0, 1.0)
    return (
        f"{best} has the highest {title}, {figures[best]}; {others[0]} is next with {figures[others[0]]}, and the interval of the "
        f"difference ({100 * nearest.confidence:g} %) is {percent_change(low)} … {percent_change(high)}"
    )


def _matches(measurement: Measurement, topology: str, method: str, frame: FrameMix) -> bool:
    is_shown = measurement.outcome.status is not MeasurementStatus.INVALID and not measurement.is_noise_floor
    return is_shown and (measurement.topology, measurement.method, measurement.frame.name) == (topology, method, frame.name)


def _with_one_metric(measurement: Measurement, metric: str) -> Measurement:
    outcome = measurement.outcome.model_copy(update={"metrics": {metric: measurement.outcome.metrics[metric]}})
    return measurement.model_copy(update={"outcome": outcome})


def _comparison(record: RunRecord, baseline: str, candidate: str, metric: str) -> MetricComparison:
    return next(row.comparison for row in compare_labels(record, baseline, candidate).rows if row.key.metric == metric)
