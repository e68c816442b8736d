"""What is told of a request and its run, or of a run that nobody requested."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from ringroad_lab.fleet.request import MEASURED, Request, RequestState
from ringroad_lab.notification.interface import Occasion, Stage
from ringroad_lab.record import MeasurementStatus, RunRecord, RunState
from ringroad_lab.report.findings import frames_text, metric_title, status_counts
from ringroad_lab.report.plain_text import printable, printable_lines
from ringroad_lab.report.quantity import percent_change
from ringroad_lab.statistics.verdict import Verdict
from ringroad_lab.store.queries import StoredComparison

if TYPE_CHECKING:
    from ringroad_lab.comparison import RunComparison

_TOLD_REGRESSIONS = 20
_TOLD_REASON_CHARACTERS = 4000


def _not_compared() -> None:
    return


@dataclass(frozen=True)
class Notice:
    """How far a request has come, or how a run ended. Of the same it is the same, whenever it is made."""

    record: RunRecord | None
    """The run; None where there is none yet, or never will be."""
    comparison: StoredComparison | None = None
    """Of the run with its baseline, where there was one."""
    stage: Stage = Stage.COMPLETE
    request: Request | None = None
    """None: nobody requested the run."""
    outcome: str = ""
    """What the request came to: its verdict, or `dead`, `cancelled`, `superseded`."""
    reason: str = ""
    """Why, at the stage `error`."""
    payload: bytes = b""
    """The message that the request came of, as it was received."""
    load_comparison: Callable[[], RunComparison | None] = _not_compared
    """Makes the whole of the comparison, with all figures, as reports need it; it may raise LabError."""
    happened_at: float = field(default_factory=time.time)
    """Seconds since 1970."""

    @property
    def occasions(self) -> frozenset[Occasion]:
        """What there is to tell."""
        found = {Occasion.ALWAYS}
        if self.comparison and self.comparison.counts.get(Verdict.REGRESSION):
            found.add(Occasion.REGRESSION)
        if self.record and (self.record.state is RunState.FAILED or MeasurementStatus.INVALID in status_counts(self.record)):
            found.add(Occasion.FAILURE)
        if self.stage is Stage.ERROR:
            # What somebody took back, or a newer build replaced, is no failure, even where its run has an invalid measurement.
            found = {Occasion.ALWAYS} | ({Occasion.FAILURE} if self.outcome == RequestState.DEAD else set())
        return frozenset(found)

    @property
    def verdict(self) -> str:
        """What it came to; empty before the end."""
        if self.outcome or self.stage is not Stage.COMPLETE or self.record is None:
            return self.outcome
        if self.comparison:
            return Verdict.REGRESSION if self.comparison.counts.get(Verdict.REGRESSION) else self.comparison.verdict
        return Verdict.INVALID if MeasurementStatus.INVALID in status_counts(self.record) else MEASURED

    @property
    def labels(self) -> Mapping[str, str]:
        """Those of the run and of the request, which rules fill with fields of its message."""
        return {**(self.record.labels if self.record else {}), **(self.request.order.labels if self.request else {})}

    @property
    def what_came(self) -> str:
        """For people, without a name."""
        record, comparison = self.record, self.comparison
        if self.stage is not Stage.COMPLETE or record is None:
            return self.outcome or self.stage
        if record.state is RunState.FAILED:
            return "failed"
        return f"{comparison.what_came} beside {comparison.baseline}" if comparison else record.state.value

    @property
    def subject(self) -> str:
        """In a line."""
        if self.stage is Stage.COMPLETE and self.record:
            return printable(f"{self.record.name} ({self.record.run_id[:8]}): {self.what_came}")
        about = f"request {self.request.id} ({self.request.build}, {self.request.scenario or 'no scenario'})" if self.request else "a run"
        return printable(f"{about}: {self.what_came}")

    @property
    def text(self) -> str:
        """For people, lines of it."""
        lines = [self.subject, ""]
        if self.reason:
            lines.append(f"Reason: {self.reason[-_TOLD_REASON_CHARACTERS:]}")
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
        for found in regressions[:_TOLD_REGRESSIONS]:
            change = f" {percent_change(found.ratio)}" if found.ratio is not None else ""
            lines.append(f"Regression: {metric_title(found.metric)} of {found.dut}, {found.topology}, {frames_text(found.frame)}:{change}")
        if len(regressions) > _TOLD_REGRESSIONS:
            lines.append(f"and {len(regressions) - _TOLD_REGRESSIONS} more regressions")
        return lines

    def as_json(self) -> dict[str, object]:
        """For programs; `text` is what chat servers show."""
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
