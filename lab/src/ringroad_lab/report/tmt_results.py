"""A run and a comparison as custom results of a tmt test (`result: custom`).

There is one result for each device, with a subresult for each method and frame size.
Improvement and no difference pass, a regression fails, an inconclusive result is a warning, an invalid result an error.
Keys and values follow tmt's specification (spec/results). The file is YAML in its JSON subset.
"""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

from ringroad_lab.comparison import RunComparison
from ringroad_lab.record import RunRecord
from ringroad_lab.report.case import Case, Kind, run_cases
from ringroad_lab.report.interface import Reporter
from ringroad_lab.report.plain_text import printable

_RESULTS: dict[Kind | None, str] = {None: "pass", "skipped": "warn", "error": "error", "failure": "fail"}
# A regression of a device is more severe than an error of the bed.
_SEVERITY = list(_RESULTS.values())


class TmtReporter(Reporter):
    """Renders a run."""

    title: ClassVar[str] = "results.yaml of tmt: a result for each device, a subresult for each method and frame size"
    suffix: ClassVar[str] = ".yaml"
    media_type: ClassVar[str] = "application/yaml"
    compares: ClassVar[bool] = True

    def render(self, record: RunRecord, comparison: RunComparison | None = None) -> str:
        """Return a run, with the verdicts of its comparison if there is one."""
        devices: dict[str, dict[str, list[Case]]] = {}
        results: list[dict[str, Any]] = []
        for case in run_cases(record, comparison):
            if (subject := case.subject) is None:
                results.append({"name": "/", "result": _RESULTS[case.kind], "note": [printable(case.message)]})
            else:
                of_device = devices.setdefault(_name(subject.topology, subject.dut), {})
                of_device.setdefault(_name(subject.method, subject.frame), []).append(case)
        for name, subjects in devices.items():
            parts = [_result(part, cases) for part, cases in subjects.items()]
            elapsed_s = sum(_elapsed_s(cases) for cases in subjects.values())
            note = [f"compared with {printable(comparison.baseline)}"] if comparison else []
            result = {"name": name, "result": _worst([part["result"] for part in parts]), "note": note, "duration": _duration(elapsed_s)}
            results.append({**result, "ids": {"ringroad-lab-run": record.run_id}, "subresult": parts})
        if not results:
            results.append({"name": "/", "result": "error", "note": ["nothing was measured"]})
        return json.dumps(results, indent=2, ensure_ascii=False) + "\n"


def _result(name: str, cases: list[Case]) -> dict[str, Any]:
    lines = [line for case in cases for line in (case.message, *case.figures.splitlines())]
    note = [printable(line) for line in dict.fromkeys(lines) if line]
    result = _worst([_RESULTS[case.kind] for case in cases])
    return {"name": name, "result": result, "note": note, "duration": _duration(_elapsed_s(cases))}


def _worst(results: list[str]) -> str:
    return max(results, key=_SEVERITY.index)


def _elapsed_s(cases: list[Case]) -> float:
    # Each case of the same measurements has the total time of these measurements.
    return max(case.elapsed_s for case in cases)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(min(seconds, 1e9)), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"


def _name(*parts: str) -> str:
    return "".join(f"/{re.sub(r'[^A-Za-z0-9._+-]+', '-', part).strip('-') or '-'}" for part in parts)
