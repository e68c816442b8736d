"""Converts a run and a comparison to test cases for continuous integration: one case for each headline metric."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ringroad_lab.comparison import ComparisonRow, RowKey, RunComparison
from ringroad_lab.grouping import grouped
from ringroad_lab.record import Measurement, MeasurementStatus, RunRecord, RunState
from ringroad_lab.report.quantity import percent_change, quantity
from ringroad_lab.statistics.verdict import Verdict

Kind = Literal["failure", "error", "skipped"]


@dataclass(frozen=True)
class Case:
    """A headline metric, or the end of an unfinished run."""

    group: Sequence[str]
    """Names from the outermost to the innermost."""
    name: str
    subject: RowKey | None = None
    """None: the run itself."""
    kind: Kind | None = None
    """A regression is a failure, an invalid result an error, an inconclusive result skipped or a failure; None: passed."""
    message: str = ""
    figures: str = ""
    elapsed_s: float = 0.0


def run_cases(record: RunRecord, comparison: RunComparison | None, *, fails_on_inconclusive: bool = False) -> list[Case]:
    """Return the cases of a run, with the verdicts of its comparison if there is one."""
    headlines = [row for row in comparison.rows if row.is_headline] if comparison else []
    rows = grouped(headlines, lambda row: (row.key.topology, row.key.dut, row.key.method, row.key.frame))
    measured = [m for m in record.measurements if not m.is_noise_floor]
    groups = grouped(measured, lambda m: (m.topology, m.dut, m.method, m.frame.name))
    cases = [] if record.state is RunState.FINISHED else [_end_of_run(record)]
    for subject, measurements in groups.items():
        if compared := rows.get(subject):
            cases += [_compared(record.name, row, fails_on_inconclusive, measurements) for row in compared]
        else:
            cases.append(_measured(record.name, measurements))
    return cases


def comparison_cases(comparison: RunComparison, *, fails_on_inconclusive: bool = False) -> list[Case]:
    """Return the cases of a comparison alone."""
    return [_compared(comparison.candidate, row, fails_on_inconclusive) for row in comparison.rows if row.is_headline]


def _end_of_run(record: RunRecord) -> Case:
    if record.state is RunState.STOPPED:
        return Case((record.name,), "the run", None, "skipped", record.failure or "the run was stopped before its end")
    message = record.failure or "no reason was recorded"
    if record.state is RunState.NOT_INSTALLED:
        # The output of the build recipe shows the reason.
        log = "\n".join(log.text for log in record.logs)
        return Case((record.name,), "installing the build", None, "error", f"{RunState.NOT_INSTALLED}: {message}", log)
    return Case((record.name,), "the run", None, "error", message)


def _measured(run: str, measurements: Sequence[Measurement]) -> Case:
    """Return the case of measurements that are not compared."""
    first = measurements[0]
    headline = next((m.outcome.headline for m in measurements if m.outcome.headline), "")
    metrics = [m.outcome.metrics[headline] for m in measurements if headline in m.outcome.metrics]
    invalid = _reasons(measurements, MeasurementStatus.INVALID)
    unclear = _reasons(measurements, MeasurementStatus.INCONCLUSIVE)
    return Case(
        (run, first.topology, first.dut),
        f"{first.method}, {first.frame.name}{f', {headline}' if headline else ''}",
        RowKey(topology=first.topology, dut=first.dut, method=first.method, frame=first.frame.name, metric=headline),
        "error" if invalid else "skipped" if unclear else None,
        "; ".join(invalid or unclear),
        _side(headline, [metric.value for metric in metrics], metrics[0].unit) if metrics else "",
        sum(m.elapsed_s for m in measurements),
    )


def _compared(run: str, row: ComparisonRow, fails_on_inconclusive: bool, measurements: Sequence[Measurement] = ()) -> Case:
    result, invalid = row.comparison, _reasons(measurements, MeasurementStatus.INVALID)
    change = f"{row.key.metric} {percent_change(result.ratio)}" if result.ratio is not None else row.key.metric
    kind: Kind | None = None
    reasons: Iterable[str] = (result.reason,)
    if result.verdict is Verdict.REGRESSION:
        kind = "failure"
    elif result.verdict is Verdict.INVALID or invalid:
        kind, reasons = "error", (result.reason, *invalid)
    elif result.verdict is Verdict.INCONCLUSIVE:
        kind = "failure" if fails_on_inconclusive else "skipped"
    figures = [_side("baseline", result.baseline, row.unit), _side("candidate", result.candidate, row.unit), f"change: {change}"]
    if result.interval:
        low, high = map(percent_change, result.interval)
        figures.append(f"interval of the change, {100 * result.confidence:g} %: {low} to {high}")
    if result.smallest_detectable is not None:
        figures.append(f"smallest detectable change: {100 * result.smallest_detectable:.1f} %")
    figures.append(f"verdict: {result.verdict}")
    return Case(
        (run, row.key.topology, row.key.dut),
        f"{row.key.method}, {row.key.frame}, {row.key.metric}",
        row.key,
        kind,
        "; ".join([f"{result.verdict}: {change}", *dict.fromkeys(reason for reason in reasons if reason)]),
        "\n".join(figures),
        sum(m.elapsed_s for m in measurements),
    )


def _reasons(measurements: Iterable[Measurement], status: MeasurementStatus) -> list[str]:
    texts = ("; ".join(m.outcome.reasons) or f"{status}: no reason was recorded" for m in measurements if m.outcome.status is status)
    return list(dict.fromkeys(texts))


def _side(name: str, samples: Sequence[float], unit: str) -> str:
    return f"{name}: {quantity(statistics.median(samples), unit)}, median of {len(samples)}" if samples else f"{name}: no value"
