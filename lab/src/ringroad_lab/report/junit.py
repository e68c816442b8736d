"""A run and a comparison as JUnit XML, by which Jenkins, GitLab and others show them: a test case for each headline metric.

A regression is a failure, what is invalid an error, what is inconclusive is skipped or a failure. The elements and attributes are those of
Jenkins' `junit-10.xsd`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ClassVar, Literal
from xml.etree import ElementTree

from ringroad_lab.comparison import ComparisonRow, RunComparison
from ringroad_lab.record import Measurement, MeasurementStatus, RunRecord, RunState
from ringroad_lab.report.interface import Reporter
from ringroad_lab.report.plain_text import printable, printable_lines
from ringroad_lab.report.quantity import percent_change, quantity
from ringroad_lab.statistics.verdict import Verdict

_Kind = Literal["failure", "error", "skipped"]


@dataclass(frozen=True)
class _Case:
    group: Sequence[str]
    """From the outermost to the innermost."""
    name: str
    kind: _Kind | None = None
    message: str = ""
    figures: str = ""
    elapsed_s: float = 0.0


@dataclass
class _Suite:
    name: str
    cases: list[_Case]
    properties: dict[str, str] = field(default_factory=dict)
    started_at: float | None = None


class JunitReporter(Reporter):
    """See [`run_as_junit`]."""

    title: ClassVar[str] = "JUnit XML: a test case for each headline metric"
    suffix: ClassVar[str] = ".xml"
    media_type: ClassVar[str] = "application/xml"
    compares: ClassVar[bool] = True

    def render(self, record: RunRecord, comparison: RunComparison | None) -> str:
        """Render a run."""
        return run_as_junit(record, comparison)


def run_as_junit(record: RunRecord, comparison: RunComparison | None, *, fails_on_inconclusive: bool = False) -> str:
    """Return a run, with the verdicts of its comparison where there is one."""
    rows: dict[tuple[str, str, str, str], list[ComparisonRow]] = {}
    for row in comparison.rows if comparison else ():
        if row.is_headline:
            rows.setdefault((row.key.topology, row.key.dut, row.key.method, row.key.frame), []).append(row)
    groups: dict[tuple[str, str, str, str], list[Measurement]] = {}
    for m in record.measurements:
        if not m.is_noise_floor:
            groups.setdefault((m.topology, m.dut, m.method, m.frame.name), []).append(m)
    cases = [] if record.state is RunState.FINISHED else [_end_of_run(record)]
    for subject, measurements in groups.items():
        if compared := rows.get(subject):
            cases += [_compared(record.name, row, fails_on_inconclusive, measurements) for row in compared]
        else:
            cases.append(_measured(record.name, measurements))
    properties = {"run": record.run_id, "state": record.state, "ringroad-lab": record.lab_version, **record.labels}
    if comparison:
        properties |= {"baseline": comparison.baseline, "verdict": comparison.verdict}
    return _xml(_Suite(record.name, cases, properties, record.started_at))


def comparison_as_junit(comparison: RunComparison, *, fails_on_inconclusive: bool = False) -> str:
    """Return a comparison alone."""
    name = f"{comparison.candidate} beside {comparison.baseline}"
    cases = [_compared(comparison.candidate, row, fails_on_inconclusive) for row in comparison.rows if row.is_headline]
    return _xml(_Suite(name, cases, {"baseline": comparison.baseline, "verdict": comparison.verdict}))


def error_as_junit(name: str, outcome: str, reason: str, happened_at: float) -> str:
    """Return what never came to a verdict, with the reason; what was taken back or replaced is skipped."""
    kind: _Kind = "error" if outcome == "dead" else "skipped"
    return _xml(_Suite(name, [_Case((name,), "the request", kind, reason or outcome)], {"state": outcome}, happened_at))


def _end_of_run(record: RunRecord) -> _Case:
    is_failed = record.state is RunState.FAILED
    message = record.failure or ("no reason was recorded" if is_failed else "the run was stopped before its end")
    return _Case((record.name,), "the run", "error" if is_failed else "skipped", message)


def _measured(run: str, measurements: Sequence[Measurement]) -> _Case:
    """Return measurements of the same thing that are compared with nothing."""
    first = measurements[0]
    headline = next((m.outcome.headline for m in measurements if m.outcome.headline), "")
    metrics = [m.outcome.metrics[headline] for m in measurements if headline in m.outcome.metrics]
    invalid = _reasons(measurements, MeasurementStatus.INVALID)
    unclear = _reasons(measurements, MeasurementStatus.INCONCLUSIVE)
    return _Case(
        (run, first.topology, first.dut),
        f"{first.method}, {first.frame.name}{f', {headline}' if headline else ''}",
        "error" if invalid else "skipped" if unclear else None,
        "; ".join(invalid or unclear),
        _side(headline, [metric.value for metric in metrics], metrics[0].unit) if metrics else "",
        sum(m.elapsed_s for m in measurements),
    )


def _compared(run: str, row: ComparisonRow, fails_on_inconclusive: bool, measurements: Sequence[Measurement] = ()) -> _Case:
    result, invalid = row.comparison, _reasons(measurements, MeasurementStatus.INVALID)
    change = f"{row.key.metric} {percent_change(result.ratio)}" if result.ratio is not None else row.key.metric
    kind: _Kind | None = None
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
    return _Case(
        (run, row.key.topology, row.key.dut),
        f"{row.key.method}, {row.key.frame}, {row.key.metric}",
        kind,
        "; ".join([f"{result.verdict}: {change}", *dict.fromkeys(reason for reason in reasons if reason)]),
        "\n".join(figures),
        sum(m.elapsed_s for m in measurements),
    )


def _reasons(measurements: Iterable[Measurement], status: MeasurementStatus) -> list[str]:
    told = ("; ".join(m.outcome.reasons) or f"{status}: no reason was recorded" for m in measurements if m.outcome.status is status)
    return list(dict.fromkeys(told))


def _side(name: str, samples: Sequence[float], unit: str) -> str:
    return f"{name}: {quantity(statistics.median(samples), unit)}, median of {len(samples)}" if samples else f"{name}: no figure"


def _xml(suite: _Suite) -> str:
    def counted(kind: _Kind) -> str:
        return str(sum(case.kind == kind for case in suite.cases))

    totals = {"tests": str(len(suite.cases)), "failures": counted("failure"), "errors": counted("error")}
    time = {"time": f"{sum(case.elapsed_s for case in suite.cases):.3f}"}
    root = ElementTree.Element("testsuites", {"name": "ringroad-lab", **totals, **time})
    element = ElementTree.SubElement(root, "testsuite", {"name": printable(suite.name), **totals, "skipped": counted("skipped"), **time})
    if suite.started_at is not None and (timestamp := _timestamp(suite.started_at)):
        element.set("timestamp", timestamp)
    properties = ElementTree.SubElement(element, "properties")
    for name, value in suite.properties.items():
        ElementTree.SubElement(properties, "property", {"name": printable(name), "value": printable(value)})
    for case in suite.cases:
        # Readers take dots for the edges of packages.
        classname = ".".join(printable(part).replace(".", "_") for part in case.group)
        node = ElementTree.SubElement(
            element, "testcase", {"classname": classname, "name": printable(case.name), "time": f"{case.elapsed_s:.3f}"}
        )
        if case.kind:
            ElementTree.SubElement(node, case.kind, {"message": printable(case.message)}).text = printable_lines(case.figures)
        if case.figures:
            ElementTree.SubElement(node, "system-out").text = printable_lines(case.figures)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False).join(('<?xml version="1.0" encoding="UTF-8"?>\n', "\n"))


def _timestamp(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return ""
