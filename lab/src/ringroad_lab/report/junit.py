"""A run and a comparison as JUnit XML for Jenkins, GitLab and others: a test case for each headline metric.

A regression is a failure, an invalid result an error, an inconclusive result skipped or a failure. The elements and attributes follow
Jenkins' `junit-10.xsd`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar
from xml.etree import ElementTree

from ringroad_lab.comparison import RunComparison
from ringroad_lab.record import RunRecord
from ringroad_lab.report.case import Case, Kind, comparison_cases, run_cases
from ringroad_lab.report.interface import Reporter
from ringroad_lab.report.plain_text import printable, printable_lines
from ringroad_lab.report.quantity import utc_text


@dataclass
class _Suite:
    name: str
    cases: list[Case]
    properties: dict[str, str] = field(default_factory=dict)
    started_at: float | None = None


class JunitReporter(Reporter):
    """Renders a run."""

    title: ClassVar[str] = "JUnit XML: a test case for each headline metric"
    suffix: ClassVar[str] = ".xml"
    media_type: ClassVar[str] = "application/xml"
    compares: ClassVar[bool] = True

    def render(self, record: RunRecord, comparison: RunComparison | None = None, *, fails_on_inconclusive: bool = False) -> str:
        """Return a run, with the verdicts of its comparison if there is one."""
        cases = run_cases(record, comparison, fails_on_inconclusive=fails_on_inconclusive)
        properties = {"run": record.run_id, "state": record.state, "ringroad-lab": record.lab_version, **record.labels}
        if comparison:
            properties |= {"baseline": comparison.baseline, "verdict": comparison.verdict}
        return _xml(_Suite(record.name, cases, properties, record.started_at))


def comparisons_as_junit(comparisons: Iterable[RunComparison], *, fails_on_inconclusive: bool = False) -> str:
    """Return comparisons alone, a test suite each."""
    suites = [
        _Suite(
            f"{each.candidate} compared with {each.baseline}",
            comparison_cases(each, fails_on_inconclusive=fails_on_inconclusive),
            {"baseline": each.baseline, "verdict": each.verdict},
        )
        for each in comparisons
    ]
    return _xml(*suites)


def error_as_junit(name: str, outcome: str, reason: str, happened_at: float) -> str:
    """Return a request without a verdict, with the reason; a cancelled or superseded request is skipped."""
    kind: Kind = "error" if outcome == "dead" else "skipped"
    return _xml(_Suite(name, [Case((name,), "the request", None, kind, reason or outcome)], {"state": outcome}, happened_at))


def _xml(*suites: _Suite) -> str:
    totals = _totals([case for suite in suites for case in suite.cases])
    root = ElementTree.Element("testsuites", {"name": "ringroad-lab", **totals})
    for suite in suites:
        _add_suite(root, suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False).join(('<?xml version="1.0" encoding="UTF-8"?>\n', "\n"))


def _totals(cases: Sequence[Case]) -> dict[str, str]:
    counts = {name: str(sum(case.kind == kind for case in cases)) for name, kind in (("failures", "failure"), ("errors", "error"))}
    return {"tests": str(len(cases)), **counts, "time": f"{sum(case.elapsed_s for case in cases):.3f}"}


def _add_suite(root: ElementTree.Element, suite: _Suite) -> None:
    skipped = str(sum(case.kind == "skipped" for case in suite.cases))
    element = ElementTree.SubElement(root, "testsuite", {"name": printable(suite.name), **_totals(suite.cases), "skipped": skipped})
    if suite.started_at is not None and (timestamp := utc_text(suite.started_at, "%Y-%m-%dT%H:%M:%S")):
        element.set("timestamp", timestamp)
    properties = ElementTree.SubElement(element, "properties")
    for name, value in suite.properties.items():
        ElementTree.SubElement(properties, "property", {"name": printable(name), "value": printable(value)})
    for case in suite.cases:
        # Readers interpret dots as package separators.
        classname = ".".join(printable(part).replace(".", "_") for part in case.group)
        node = ElementTree.SubElement(
            element, "testcase", {"classname": classname, "name": printable(case.name), "time": f"{case.elapsed_s:.3f}"}
        )
        if case.kind:
            ElementTree.SubElement(node, case.kind, {"message": printable(case.message)}).text = printable_lines(case.figures)
        if case.figures:
            ElementTree.SubElement(node, "system-out").text = printable_lines(case.figures)
