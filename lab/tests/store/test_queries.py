"""Queries and filters of the store."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fabricated_runs import EPOCH, fabricated_run
from ringroad_lab.errors import StoreError
from ringroad_lab.record import RunRecord, RunState
from ringroad_lab.store import queries
from ringroad_lab.store.queries import RunFilter, TrendSubject
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.web.reviews import Review, ReviewChangedError, RunNotEndedError, change_review, read_review

OLD = fabricated_run(run_id="aaaa0000-old", started_at=EPOCH, labels={"version": "1.0"}, versions={"ovs": "2.17"})
NEW = fabricated_run(run_id="aaaa1111-new", started_at=EPOCH + 1e6, labels={"version": "2.0%"}, supersedes="aaaa0000-old", seed=2)
SUBJECT = TrendSubject(scenario=OLD.name, topology="P2P", dut="ovs", method="throughput", frame="64", metric="throughput_fps")
OTHER = fabricated_run(
    run_id="bbbb0000-other", name="other", started_at=EPOCH + 2e6, capacities_fps={"testpmd": 1e6}, state=RunState.FAILED, latency=False
)


@pytest.fixture
def filled(store: ResultStore) -> ResultStore:
    """A store with three runs."""
    assert store.add_runs([OLD, NEW, OTHER]) == 3
    return store


@pytest.mark.parametrize(
    ("which", "found"),
    [
        (RunFilter(), [OTHER, NEW, OLD]),
        (RunFilter(name="other"), [OTHER]),
        (RunFilter(dut="ovs"), [NEW, OLD]),
        (RunFilter(version="2.17"), [OLD]),
        (RunFilter(version="2.0%"), [NEW]),
        (RunFilter(version="%"), [NEW]),
        (RunFilter(dut="testpmd"), [OTHER]),
        (RunFilter(state=RunState.FAILED), [OTHER]),
        (RunFilter(superseded=False), [OTHER, NEW]),
        (RunFilter(since=EPOCH + 1e6), [OTHER, NEW]),
        (RunFilter(until=EPOCH + 1e6), [OLD]),
        (RunFilter(name="' OR 1=1 --"), []),
        (RunFilter(name="nul\0"), []),
    ],
)
def test_runs_are_filtered(filled: ResultStore, which: RunFilter, found: list[RunRecord]) -> None:
    assert [summary.run_id for summary in filled.summaries(which)] == [record.run_id for record in found]
    assert filled.count(which) == len(found)


def test_lists_have_pages(filled: ResultStore) -> None:
    assert [summary.run_id for summary in filled.summaries(limit=1, offset=1)] == [NEW.run_id]


def test_a_summary_names_its_successor(filled: ResultStore) -> None:
    summaries = {summary.run_id: summary for summary in filled.summaries()}
    assert summaries[OLD.run_id].superseded_by == (NEW.run_id,)
    assert summaries[NEW.run_id].supersedes == OLD.run_id
    assert summaries[OLD.run_id].versions == ("ovs 2.17",)


def test_metrics_are_found_but_not_those_of_superseded_runs(filled: ResultStore) -> None:
    points = filled.metric_points(SUBJECT)
    assert [(point.run_id, point.repetition) for point in points] == [(NEW.run_id, 0), (NEW.run_id, 1), (NEW.run_id, 2)]
    expected = [
        m.outcome.metrics["throughput_fps"].value
        for m in NEW.measurements
        if (m.dut, m.frame.name, m.method) == ("ovs", "64", "throughput")
    ]
    assert [point.value for point in points] == expected


@pytest.mark.parametrize("state", [RunState.STOPPED, RunState.FAILED])
def test_a_run_that_did_not_finish_supersedes_none(store: ResultStore, state: RunState) -> None:
    store.add_runs([OLD, NEW.model_copy(update={"state": state})])
    assert OLD.run_id in [point.run_id for point in store.metric_points(SUBJECT)]
    assert OLD.run_id in [summary.run_id for summary in store.summaries(RunFilter(superseded=False))]


def test_choices_are_the_stored_values(filled: ResultStore) -> None:
    choices = filled.choices()
    assert choices.names == ("P2P_FABRICATED", "other")
    assert "testpmd" in choices.duts


def test_runs_are_named_by_id_beginning_or_baseline(filled: ResultStore) -> None:
    assert filled.resolve(OLD.run_id) == OLD.run_id
    assert filled.resolve("bbbb") == OTHER.run_id
    assert filled.resolve("latest") == OTHER.run_id
    filled.add_run(fabricated_run(run_id="latest", started_at=EPOCH))
    assert filled.resolve("latest") == OTHER.run_id
    with pytest.raises(StoreError, match="several runs"):
        filled.resolve("aaaa")
    with pytest.raises(StoreError, match="no run or baseline"):
        filled.resolve("bbb")
    with pytest.raises(StoreError, match="no run or baseline"):
        filled.resolve("%%%%%%")


def test_a_baseline_can_be_moved_to_another_run(filled: ResultStore) -> None:
    filled.set_baseline("v1", OLD.run_id)
    filled.set_baseline("v1", NEW.run_id)
    filled.set_baseline("main", OLD.run_id)
    assert [(entry.name, entry.run_id) for entry in filled.baselines()] == [("main", OLD.run_id), ("v1", NEW.run_id)]
    assert filled.resolve("v1") == NEW.run_id
    with pytest.raises(StoreError, match="no run"):
        filled.set_baseline("v2", "nowhere")
    for name in ("latest", "last-stable", "", "a b", "x" * 101):
        with pytest.raises(StoreError, match="cannot name a baseline"):
            filled.set_baseline(name, OLD.run_id)


def judge(store: ResultStore, run_id: str, verdict: queries.TesterVerdict) -> None:
    """Set the tester's verdict on a run."""
    change_review(store, run_id, Review(verdict=verdict), "user ann", read_review(store, run_id).last_change)


def test_the_last_stable_run_for_another_run_is_from_its_machine(store: ResultStore) -> None:
    here, there = ({"machine": {"name": name, "id": name * 4}} for name in ("here", "there"))
    mine = fabricated_run(run_id="mine0000", facts=here, latency=False)
    theirs = fabricated_run(run_id="theirs00", facts=there, started_at=EPOCH + 1e6, latency=False)
    store.add_runs([mine, theirs])
    judge(store, theirs.run_id, queries.TesterVerdict.PASS)
    with pytest.raises(StoreError, match=r"theirs00 has, but on there: .* use --baseline theirs00"):
        store.resolve("last-stable", mine)
    judge(store, mine.run_id, queries.TesterVerdict.PASS)
    assert store.resolve("last-stable", mine) == mine.run_id
    assert store.resolve("last-stable") == theirs.run_id


def test_the_last_stable_run_is_the_newest_finished_one_that_a_tester_passed(filled: ResultStore) -> None:
    with pytest.raises(StoreError, match="no finished run"):
        filled.resolve("last-stable")
    judge(filled, OLD.run_id, queries.TesterVerdict.PASS)
    judge(filled, OTHER.run_id, queries.TesterVerdict.PASS)
    assert filled.last_stable() is None, "one was superseded, the other failed"
    judge(filled, NEW.run_id, queries.TesterVerdict.PASS)
    assert filled.resolve("last-stable") == NEW.run_id
    assert filled.last_stable("other") is None
    newest = fabricated_run(run_id="cccc0000-newest", started_at=EPOCH + 3e6)
    filled.add_run(newest)
    judge(filled, newest.run_id, queries.TesterVerdict.PASS)
    assert filled.resolve("last-stable") == newest.run_id
    judge(filled, newest.run_id, queries.TesterVerdict.FAIL)
    assert filled.resolve("last-stable") == NEW.run_id
    assert filled.summaries(RunFilter(verdict=queries.TesterVerdict.FAIL))[0].run_id == newest.run_id


def test_a_run_that_has_not_ended_has_neither_verdict_nor_metrics(store: ResultStore) -> None:
    store.begin_run(OLD.model_copy(update={"measurements": ()}))
    store.add_measurement(OLD.run_id, OLD.measurements[0])
    with pytest.raises(RunNotEndedError, match="not ended"):
        judge(store, OLD.run_id, queries.TesterVerdict.PASS)
    assert store.metric_points(SUBJECT.model_copy(update={"dut": OLD.measurements[0].dut})) == []


def test_one_of_two_simultaneous_verdicts_is_rejected(filled: ResultStore) -> None:
    both_have_checked = threading.Barrier(2)

    def clock() -> float:
        # Called after the check for an earlier verdict. The second thread must not pass that check.
        with contextlib.suppress(threading.BrokenBarrierError):
            both_have_checked.wait(0.3)
        return EPOCH

    def set_verdict(verdict: queries.TesterVerdict) -> bool:
        try:
            change_review(filled, OLD.run_id, Review(verdict=verdict), "user ann", 0, clock)
        except ReviewChangedError:
            return False
        return True

    with ThreadPoolExecutor() as pool:
        assert sorted(pool.map(set_verdict, (queries.TesterVerdict.PASS, queries.TesterVerdict.FAIL))) == [False, True]
