"""Testers' reviews of runs, and their audit log."""

from __future__ import annotations

import pytest
from web_visitor import TESTER, WebVisitor

from fabricated_runs import fabricated_run
from ringroad_lab.record import RunRecord
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.web.audit import entries


def changes(store: ResultStore, run_id: str) -> list[tuple[str, str, str, str]]:
    """Return the audit log entries of a run, oldest first."""
    with store.reading() as database:
        found, _ = entries(database, run_id=run_id, limit=100)
        return [(entry.actor, entry.action, entry.old, entry.new) for entry in reversed(found)]


def test_each_change_is_in_the_log_with_old_and_new(tester: WebVisitor, run: RunRecord, store: ResultStore) -> None:
    actor = f"user {TESTER}"
    assert tester.review(run.run_id, verdict="needs rerun", comment="noisy").status_code == 303
    assert tester.review(run.run_id, verdict="pass", comment="noisy", bug_link="https://bugs.example/1").status_code == 303
    assert tester.review(run.run_id, verdict="pass", comment="", bug_link="https://bugs.example/1").status_code == 303

    assert changes(store, run.run_id) == [
        (actor, "verdict", "", "needs rerun"),
        (actor, "comment", "", "noisy"),
        (actor, "verdict", "needs rerun", "pass"),
        (actor, "bug link", "", "https://bugs.example/1"),
        (actor, "comment", "noisy", ""),
    ]


def test_the_same_review_again_is_not_a_change(tester: WebVisitor, run: RunRecord, store: ResultStore) -> None:
    for _ in range(2):
        tester.review(run.run_id, verdict="pass", comment="a\r\nb ")

    assert len(changes(store, run.run_id)) == 2


@pytest.mark.parametrize(
    "link",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "data:text/html,x",
        "ftp://x",
        "//evil.example",
        "https://",
        "http://a b",
        "https://x/\u202e",
        "x",
        "http://[::1",
        "https://x/" + "y" * 2000,
    ],
)
def test_an_invalid_link_is_refused_without_a_change(tester: WebVisitor, run: RunRecord, store: ResultStore, link: str) -> None:
    response = tester.review(run.run_id, verdict="pass", comment="kept for copying", bug_link=link)

    assert response.status_code == 400
    assert "http://" in response.text
    assert "kept for copying" in response.text
    assert changes(store, run.run_id) == []


@pytest.mark.parametrize("values", [{"verdict": "superb"}, {"comment": "x" * 10_001}, {"comment": "a\0b"}])
def test_an_invalid_review_is_refused(tester: WebVisitor, run: RunRecord, store: ResultStore, values: dict[str, str]) -> None:
    assert tester.review(run.run_id, **values).status_code == 400
    assert changes(store, run.run_id) == []


def test_a_stale_form_does_not_overwrite_a_newer_review(tester: WebVisitor, run: RunRecord, store: ResultStore) -> None:
    tester.review(run.run_id, comment="first")

    response = tester.review(run.run_id, comment="second", last_change="0")

    assert response.status_code == 409
    assert "second" in response.text
    assert [change[3] for change in changes(store, run.run_id)] == ["first"]


def test_a_run_that_has_not_ended_cannot_be_judged_but_commented(tester: WebVisitor, store: ResultStore) -> None:
    record = fabricated_run()
    store.begin_run(record.model_copy(update={"measurements": ()}))

    assert tester.review(record.run_id, verdict="pass").status_code == 409
    assert tester.review(record.run_id, comment="going well").status_code == 303
    assert [change[1] for change in changes(store, record.run_id)] == ["comment"]


def test_a_review_of_an_unknown_run_is_refused(tester: WebVisitor) -> None:
    data = {"last_change": "0", "verdict": "pass"}

    assert tester.client.post("/runs/none/review", data=data).status_code == 404


def test_a_form_that_is_too_large_is_refused(tester: WebVisitor, run: RunRecord) -> None:
    assert tester.review(run.run_id, comment="x" * 1_000_000).status_code == 413
