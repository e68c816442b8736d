"""The content of notifications about a request and its run, or about a run without a request."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from ringroad_lab.record import MeasurementStatus, RunRecord, RunState
from ringroad_lab.report.figures import frames_text, metric_title, status_counts
from ringroad_lab.report.plain_text import printable, printable_lines
from ringroad_lab.report.quantity import percent_change
from ringroad_lab.request.model import MEASURED, RequestState
from ringroad_lab.request.table import Request
from ringroad_lab.statistics.verdict import Verdict
from ringroad_lab.store.queries import StoredComparison

if TYPE_CHECKING:
    from ringroad_lab.comparison import RunComparison

_REPORTED_REGRESSIONS = 20
_REPORTED_REASON_CHARACTERS = 4000


class Stage(StrEnum):
    """Stage of a request or run."""

    QUEUED = "queued"
    """The request waits for its turn."""
    RUNNING = "running"
    COMPLETE = "complete"
    """A run and a verdict exist."""
    ERROR = "error"
    """No verdict will follow: the request was given up, cancelled or superseded."""

    @property
    def is_end(self) -> bool:
        """Whether nothing more happens to the request or run."""
        return self in (Stage.COMPLETE, Stage.ERROR)


class Occasion(StrEnum):
    """Results that cause a notification at the end."""

    REGRESSION = "regression"
    """The comparison shows a regression."""
    FAILURE = "failure"
    """The run failed, a measurement is invalid, or the request is dead."""
    ALWAYS = "always"


def _not_compared() -> None:
    return


@dataclass(frozen=True)
class Notice:
    """State of a request, or result of a run. The same state always gives the same notice."""

    record: RunRecord | None
    """The run; None if there is none (yet)."""
    comparison: StoredComparison | None = None
    """Comparison of the run with its baseline, if there was a baseline."""
    stage: Stage = Stage.COMPLETE
    request: Request | None = None
    """None: a run without a request."""
    outcome: str = ""
    """Result of the request: its verdict, or `dead`, `cancelled`, `superseded`."""
    reason: str = ""
    """The reason at the stage `error`."""
    payload: bytes = b""
    """The message that caused the request, as received."""
    load_comparison: Callable[[], RunComparison | None] = _not_compared
    """Creates the full comparison with all figures, for reports; it can raise LabError."""
    happened_at: float = field(default_factory=time.time)
    """Seconds since 1970."""

    @property
    def occasions(self) -> frozenset[Occasion]:
        """Occasions of this notice."""
        found = {Occasion.ALWAYS}
        if self.comparison and self.comparison.counts.get(Verdict.REGRESSION):
            found.add(Occasion.REGRESSION)
        if self.record and (
            self.record.state in (RunState.FAILED, RunState.NOT_INSTALLED) or MeasurementStatus.INVALID in status_counts(self.record)
        ):
            found.add(Occasion.FAILURE)
        if self.stage is Stage.ERROR:
            # A cancelled or superseded request is no failure, even if its run has an invalid measurement.
            found = {Occasion.ALWAYS} | ({Occasion.FAILURE} if self.outcome == RequestState.DEAD else set())
        return frozenset(found)

    @property
    def verdict(self) -> str:
        """The verdict; empty before the end."""
        if self.outcome or self.stage is not Stage.COMPLETE or self.record is None:
            return self.outcome
        if self.comparison:
            return Verdict.REGRESSION if self.comparison.counts.get(Verdict.REGRESSION) else self.comparison.verdict
        return Verdict.INVALID if MeasurementStatus.INVALID in status_counts(self.record) else MEASURED

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the run and of the request; rules fill the latter with fields of the request's message."""
        return {**(self.record.labels if self.record else {}), **(self.request.order.labels if self.request else {})}

    @property
    def what_came(self) -> str:
        """The result for users, without a name."""
        record, comparison = self.record, self.comparison
        if self.stage is not Stage.COMPLETE or record is None:
            return self.outcome or self.stage
        if record.state in (RunState.FAILED, RunState.NOT_INSTALLED):
            return record.state.value
        return f"{comparison.what_came} compared with {comparison.baseline}" if comparison else record.state.value

    @property
    def subject(self) -> str:
        """Summary in one line."""
        if self.stage is Stage.COMPLETE and self.record:
            return printable(f"{self.record.name} ({self.record.run_id[:8]}): {self.what_came}")
        about = f"request {self.request.id} ({self.request.build}, {self.request.scenario or 'no scenario'})" if self.request else "a run"
        return printable(f"{about}: {self.what_came}")

    @property
    def text(self) -> str:
        """Text for users, several lines."""
        lines = [self.subject, ""]
        if self.reason:
            lines.append(f"Reason: {self.reason[-_REPORTED_REASON_CHARACTERS:]}")
        lines += self._about_run() if self.record and self.stage is Stage.COMPLETE else []
        lines += [f"{name}: {value}" for name, value in self.labels.items()]
        if self.record:
            lines += [f"Warning: {warning}" for warning in self.record.warnings]
            lines += ["", f"ringroad-lab report {self.record.run_id[:8]}"]
        return "\n".join(map(printable_lines, lines)) + "\n"

    def _about_run(self) -> list[str]:
        record, comparison = self.record, self.comparison
        assert record
        lines = [f"Failure: {record.failure}"] if record.failure else []
        counts = ", ".join(f"{count} {status}" for status, count in status_counts(record).items())
        lines.append(f"Measurements: {counts or 'none'}")
        regressions = [found for found in comparison.findings if found.verdict is Verdict.REGRESSION] if comparison else []
        for found in regressions[:_REPORTED_REGRESSIONS]:
            change = f" {percent_change(found.ratio)}" if found.ratio is not None else ""
            lines.append(f"Regression: {metric_title(found.metric)} of {found.dut}, {found.topology}, {frames_text(found.frame)}:{change}")
        if len(regressions) > _REPORTED_REGRESSIONS:
            lines.append(f"and {len(regressions) - _REPORTED_REGRESSIONS} more regressions")
        return lines

    def as_json(self) -> dict[str, object]:
        """Return the notice for programs (JSON); chat servers show its `text`."""
        record, comparison, request = self.record, self.comparison, self.request
        return {
            "event": "run-ended" if self.stage is Stage.COMPLETE else f"request-{self.stage}",
            "stage": self.stage,
            "occasions": sorted(self.occasions - {Occasion.ALWAYS}),
            "verdict": self.verdict,
            "reason": self.reason,
            "happened_at": self.happened_at,
            "text": self.text,
            "request": {
                "id": request.id,
                "source": request.source,
                "build": request.build,
                "scenario": request.scenario,
                "bed_class": request.bed_class,
                "owner": request.owner,
            }
            if request
            else None,
            "run_id": record.run_id if record else None,
            "name": record.name if record else None,
            "state": record.state if record else None,
            "failure": record.failure if record else "",
            "started_at": record.started_at if record else None,
            "ended_at": record.ended_at if record else None,
            "labels": dict(self.labels),
            "measurements": status_counts(record) if record else {},
            "comparison": asdict(comparison) | {"baseline": comparison.baseline} if comparison else None,
        }
