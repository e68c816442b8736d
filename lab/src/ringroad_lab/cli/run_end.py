"""The end of `ringroad-lab run` and `ringroad-lab resume`: reports, notifications, and the exit status."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ringroad_lab.cli import status
from ringroad_lab.cli.notify import warn_of
from ringroad_lab.cli.report import STANDARD_OUTPUT, reporter_of, write_file
from ringroad_lab.comparison import RunComparison
from ringroad_lab.disturbances import tally_disturbances
from ringroad_lab.errors import ReportError
from ringroad_lab.notification.delivery import Target, notify
from ringroad_lab.record import MeasurementStatus, RunRecord, RunState
from ringroad_lab.report.figures import same_builds, took
from ringroad_lab.report.junit import JunitReporter
from ringroad_lab.report.plain_text import printable
from ringroad_lab.run.carry_out import EndedRun


@dataclass(frozen=True)
class EndOptions:
    """Options of reporting the end of a run."""

    is_quiet: bool
    as_json: bool
    fails_on_inconclusive: bool
    report: Path | None
    junit: Path | None
    recipients: tuple[Target, ...]
    """Recipients of a notification when the run ends."""

    def check(self) -> None:
        """Raise ReportError, before anything is measured, if a report cannot be written."""
        for file in filter(None, (self.report, self.junit)):
            if file == STANDARD_OUTPUT or file.is_dir() or not os.access(file.parent, os.W_OK):
                raise ReportError(f"cannot write the report {file}: name a file in an existing, writable folder")


def report_end(ended: EndedRun, options: EndOptions, console: Console, store: str | None) -> int:
    """Report the end of a run, notify recipients, and return the exit status."""
    record, comparison = ended.record, ended.comparison
    if options.report:
        reporter = reporter_of(options.report)
        write_file(reporter.render(record, comparison if reporter.compares else None), options.report)
    if options.junit:
        write_file(JunitReporter().render(record, comparison, fails_on_inconclusive=options.fails_on_inconclusive), options.junit)
    if options.as_json:
        print(json.dumps(summary(record, comparison), indent=2))
    else:
        _print_end(console, record, comparison, options.report, store)
    warn_of(notify([each for each in options.recipients if each.notifier.concerns(ended.notice)], ended.notice))
    if record.failure:
        print(f"ringroad-lab: {record.failure}", file=sys.stderr)
    return ended.exit_status or _measured_status(record, comparison, fails_on_inconclusive=options.fails_on_inconclusive)


def summary(record: RunRecord, comparison: RunComparison | None) -> dict[str, object]:
    """Return the summary of a run for programs (JSON); `ringroad-lab export` writes the whole record."""
    return {
        "run_id": record.run_id,
        "name": record.name,
        "state": record.state,
        "failure": record.failure,
        "measurements": [
            {
                "number": m.number,
                "dut": m.dut,
                "topology": m.topology,
                "method": m.method,
                "frame": m.frame.name,
                "repetition": m.repetition,
                "is_noise_floor": m.is_noise_floor,
                "status": m.outcome.status,
                "reasons": m.outcome.reasons,
                "disturbances": tally_disturbances(m.watched).model_dump(mode="json"),
                "headline": m.outcome.headline,
                "metrics": {name: metric.model_dump(mode="json") for name, metric in m.outcome.metrics.items()},
            }
            for m in record.measurements
        ],
        "warnings": record.warnings,
        "comparison": comparison.model_dump(mode="json") if comparison else None,
    }


def _print_end(console: Console, record: RunRecord, comparison: RunComparison | None, report: Path | None, store: str | None) -> None:
    where = f" --store {store}" if store else ""
    time_s = f" in {took(record)}" if record.took_s else ""
    console.print(
        f"{record.state.value}: {len(record.measurements)} measurements{time_s}, run {record.run_id[:8]}", highlight=False, soft_wrap=True
    )
    for text in same_builds(record):
        console.print(f"warning: {printable(text)}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    tally = tally_disturbances(watched for m in record.measurements for watched in m.watched)
    console.print(tally.describe(), highlight=False, markup=False, soft_wrap=True)
    if comparison:
        console.print(f"compared with {comparison.baseline}: {comparison.verdict.value}", highlight=False)
    if report:
        console.print(f"report: {report}", highlight=False)
    else:
        console.print(f"report: ringroad-lab report {record.run_id[:8]}{where}", highlight=False)
    if record.state is not RunState.FINISHED:
        console.print(f"to continue: ringroad-lab resume {record.run_id[:8]}{where}", highlight=False)


def _measured_status(record: RunRecord, comparison: RunComparison | None, *, fails_on_inconclusive: bool) -> int:
    counts = comparison.counts if comparison else {}
    compared = status.of_verdicts(counts, fails_on_regression=True, fails_on_inconclusive=fails_on_inconclusive)
    if compared != status.REGRESSION and any(step.failure for m in record.measurements for step in m.steps):
        return status.STEP_FAILED
    # A regression of the device goes before a failure of the bed.
    if compared != status.REGRESSION and any(m.outcome.status is MeasurementStatus.INVALID for m in record.measurements):
        return status.INVALID
    return compared
