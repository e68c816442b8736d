"""What is told of a run."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

from ringroad_lab.notification.settings import Occasion
from ringroad_lab.record import MeasurementStatus, RunRecord, RunState
from ringroad_lab.report.findings import frames_text, metric_title, status_counts
from ringroad_lab.report.plain_text import printable, printable_lines
from ringroad_lab.report.quantity import percent_change
from ringroad_lab.statistics.verdict import Verdict
from ringroad_lab.store.queries import StoredComparison

_TOLD_REGRESSIONS = 20


@dataclass(frozen=True)
class Notice:
    """A run that ended, and what its comparison found where there was one."""

    record: RunRecord
    comparison: StoredComparison | None

    @property
    def occasions(self) -> frozenset[Occasion]:
        """What there is to tell."""
        found = {Occasion.ALWAYS}
        if self.comparison and self.comparison.counts.get(Verdict.REGRESSION):
            found.add(Occasion.REGRESSION)
        if self.record.state in (RunState.FAILED, RunState.NOT_INSTALLED) or MeasurementStatus.INVALID in status_counts(self.record):
            found.add(Occasion.FAILURE)
        return frozenset(found)

    @property
    def subject(self) -> str:
        """In a line."""
        record, comparison = self.record, self.comparison
        what = f"{comparison.what_came} beside {comparison.baseline}" if comparison else record.state.value
        if record.state is RunState.FAILED:
            what = "failed"
        return printable(f"{record.name} ({record.run_id[:8]}): {what}")

    @property
    def text(self) -> str:
        """For people, lines of it."""
        record = self.record
        lines = [self.subject, ""]
        if record.failure:
            lines.append(f"Failure: {record.failure}")
        counts = ", ".join(f"{count} {status}" for status, count in status_counts(record).items())
        lines.append(f"Measurements: {counts or 'none'}")
        lines += [f"{name}: {value}" for name, value in record.labels.items()]
        regressions = [found for found in self.comparison.findings if found.verdict is Verdict.REGRESSION] if self.comparison else []
        for found in regressions[:_TOLD_REGRESSIONS]:
            change = f" {percent_change(found.ratio)}" if found.ratio is not None else ""
            lines.append(f"Regression: {metric_title(found.metric)} of {found.dut}, {found.topology}, {frames_text(found.frame)}:{change}")
        if len(regressions) > _TOLD_REGRESSIONS:
            lines.append(f"and {len(regressions) - _TOLD_REGRESSIONS} more regressions")
        lines += [f"Warning: {warning}" for warning in record.warnings]
        lines += ["", f"ringroad-lab report {record.run_id[:8]}"]
        return "\n".join(map(printable_lines, lines)) + "\n"

    def as_json(self) -> dict[str, object]:
        """For programs; `text` is what chat servers show."""
        record, comparison = self.record, self.comparison
        return {
            "event": "run-ended",
            "occasions": sorted(self.occasions - {Occasion.ALWAYS}),
            "sent_at": time.time(),
            "text": self.text,
            "run_id": record.run_id,
            "name": record.name,
            "state": record.state,
            "failure": record.failure,
            "started_at": record.started_at,
            "ended_at": record.ended_at,
            "labels": record.labels,
            "measurements": status_counts(record),
            "comparison": asdict(comparison) | {"baseline": comparison.baseline} if comparison else None,
        }
