"""Comparisons in the store: stored, listed, replaced, and deleted with their runs."""

from __future__ import annotations

import pytest
from sqlalchemy import delete, select

from fabricated_runs import EPOCH, fabricated_run, fabricated_throughput
from ringroad_lab.comparison import RunComparison, compare_labels, compare_runs
from ringroad_lab.errors import StoreError
from ringroad_lab.frame_size import parse_frame_mix
from ringroad_lab.record import RunState
from ringroad_lab.statistics.verdict import Verdict
from ringroad_lab.store import models
from ringroad_lab.store.queries import RunFilter
from ringroad_lab.store.result_store import ResultStore

OLD = fabricated_run(run_id="old-run", name="OLD", capacities_fps={"ovs": 1e6, "ringroad": 2e6}, repetitions=12, latency=False)
NEW = fabricated_run(
    run_id="new-run", capacities_fps={"ovs": 0.8e6, "ringroad": 2e6}, repetitions=12, seed=2, started_at=EPOCH + 1e6, latency=False
)


@pytest.fixture
def compared(store: ResultStore) -> RunComparison:
    """Two runs and their comparison, in the store."""
    store.add_runs([OLD, NEW])
    comparison = compare_runs(OLD, NEW)
    store.keep_comparison(OLD.run_id, NEW.run_id, comparison)
    return comparison


def test_a_list_shows_the_findings_of_a_comparison(store: ResultStore, compared: RunComparison) -> None:
    new, old = store.summaries()
    (kept,) = new.comparisons
    assert old.comparisons == ()
    assert (kept.baseline, kept.verdict, kept.counts) == ("OLD (old-run)", compared.verdict, compared.counts)
    assert kept.counts[Verdict.REGRESSION] == 3
    worst = [(found.dut, found.frame, round(found.ratio or 0, 1)) for found in kept.findings if found.verdict is Verdict.REGRESSION]
    assert worst == [("ovs", frame, 0.8) for frame in ("64", "512", "1518")]
    assert "3 regression" in kept.what_came


@pytest.mark.usefixtures("compared")
def test_runs_are_filtered_by_findings(store: ResultStore) -> None:
    assert [run.run_id for run in store.summaries(RunFilter(finding=Verdict.REGRESSION))] == [NEW.run_id]
    assert store.summaries(RunFilter(finding=Verdict.INVALID)) == []
    assert store.count(RunFilter(finding=Verdict.REGRESSION)) == 1


def test_a_comparison_replaces_an_earlier_one_of_the_same_sides(store: ResultStore, compared: RunComparison) -> None:
    within = compare_labels(NEW, "ovs", "ringroad")
    store.keep_comparison(NEW.run_id, NEW.run_id, within)
    store.keep_comparison(OLD.run_id, NEW.run_id, compare_runs(OLD, NEW, limit=0.001))

    last, devices = store.comparisons(NEW.run_id)

    assert (last.baseline_run_id, last.counts == compared.counts) == (OLD.run_id, False)
    assert (devices.baseline, devices.dut, devices.counts) == ("ovs", "ringroad", {Verdict.IMPROVEMENT: 3})
    with store.reading() as session:
        assert len(session.scalars(select(models.StoredFinding.id)).all()) == len(last.findings) + len(devices.findings)


def test_comparisons_of_a_run_that_continues_are_deleted(store: ResultStore) -> None:
    store.add_runs([OLD, NEW.model_copy(update={"state": RunState.STOPPED})])
    store.keep_comparison(OLD.run_id, NEW.run_id, compare_runs(OLD, NEW))

    store.add_measurement(NEW.run_id, fabricated_throughput(900, "ovs", parse_frame_mix("64"), 1e6))

    assert store.comparisons(NEW.run_id) == ()


@pytest.mark.usefixtures("compared")
@pytest.mark.parametrize("gone", [OLD.run_id, NEW.run_id])
def test_a_comparison_is_deleted_with_either_of_its_runs(store: ResultStore, gone: str) -> None:
    with store.writing() as session:
        measurements = select(models.StoredMeasurement.id).filter_by(run_id=gone).scalar_subquery()
        session.execute(delete(models.StoredMetric).where(models.StoredMetric.measurement_id.in_(measurements)))
        duts = select(models.RunDut.id).filter_by(run_id=gone).scalar_subquery()
        session.execute(delete(models.DutVersion).where(models.DutVersion.dut_id.in_(duts)))
        for table in (models.StoredMeasurement, models.RunDut, models.RunLabel, models.RunHead, models.Run):
            session.execute(delete(table).filter_by(run_id=gone))
    with store.reading() as session:
        assert session.scalars(select(models.Comparison)).all() == []
        assert session.scalars(select(models.StoredFinding)).all() == []


def test_a_comparison_with_an_unknown_run_is_rejected(store: ResultStore) -> None:
    store.add_run(NEW)
    with pytest.raises(StoreError, match="no run old-run"):
        store.keep_comparison(OLD.run_id, NEW.run_id, compare_runs(OLD, NEW))
