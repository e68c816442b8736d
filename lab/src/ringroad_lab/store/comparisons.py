"""Stored comparisons: their verdicts, so that lists of runs show them without comparing again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import delete, or_, select
from sqlalchemy.orm import Session, selectinload

from ringroad_lab.statistics.verdict import by_severity
from ringroad_lab.store import models
from ringroad_lab.store.queries import Finding, StoredComparison
from ringroad_lab.store.rows import existing_run, indexed

if TYPE_CHECKING:
    from ringroad_lab.comparison import RunComparison


def write_comparison(session: Session, baseline_run_id: str, run_id: str, comparison: RunComparison) -> None:
    """Write the result of a comparison; replace an earlier comparison of the same sides."""
    for each in sorted({baseline_run_id, run_id}):
        # The order is always the same, so that two processes that compare the same runs do not deadlock.
        existing_run(session, each, is_locked=True)
    is_within = baseline_run_id == run_id
    sides = {
        "run_id": run_id,
        "baseline_run_id": baseline_run_id,
        "dut": indexed(comparison.candidate) if is_within else "",
        "baseline_dut": indexed(comparison.baseline) if is_within else "",
    }
    session.execute(delete(models.Comparison).filter_by(**sides))
    findings = [
        models.StoredFinding(
            topology=indexed(row.key.topology),
            dut=indexed(row.key.dut),
            method=indexed(row.key.method),
            frame=indexed(row.key.frame),
            metric=indexed(row.key.metric),
            verdict=row.comparison.verdict,
            ratio=row.comparison.ratio,
        )
        for row in comparison.rows
        if row.is_headline
    ]
    session.add(models.Comparison(**sides, verdict=comparison.verdict, compared_at=time.time(), findings=findings))


def forget_comparisons(session: Session, run_id: str) -> None:
    """Remove the comparisons of a run that continues: they do not cover its new measurements."""
    sides = models.Comparison
    session.execute(delete(sides).where(or_(sides.run_id == run_id, sides.baseline_run_id == run_id)))


def read_comparisons(session: Session, run_ids: Sequence[str]) -> Mapping[str, tuple[StoredComparison, ...]]:
    """Return the comparisons of runs with other runs, by run id; the newest first."""
    query = (
        select(models.Comparison, models.Run.name)
        .join(models.Run, models.Run.run_id == models.Comparison.baseline_run_id)
        .where(models.Comparison.run_id.in_(run_ids))
        .options(selectinload(models.Comparison.findings))
        .order_by(models.Comparison.compared_at.desc(), models.Comparison.id.desc())
    )
    found: dict[str, tuple[StoredComparison, ...]] = {}
    for row, name in session.execute(query):
        findings = tuple(
            Finding(each.topology, each.dut, each.method, each.frame, each.metric, each.verdict, each.ratio) for each in row.findings
        )
        stored = StoredComparison(
            run_id=row.run_id,
            baseline_run_id=row.baseline_run_id,
            baseline_name=name,
            dut=row.dut or None,
            baseline_dut=row.baseline_dut or None,
            verdict=row.verdict,
            counts=by_severity(each.verdict for each in findings),
            findings=findings,
            compared_at=row.compared_at,
        )
        found[row.run_id] = (*found.get(row.run_id, ()), stored)
    return found
