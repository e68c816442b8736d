"""Testers' reviews of runs: a verdict, a comment, a link to a bug. Each change is written to the audit log."""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError, field_validator
from sqlalchemy import select
from sqlalchemy.orm import Session

from ringroad_lab.errors import LabError
from ringroad_lab.store.models import StoredVerdict
from ringroad_lab.store.queries import TesterVerdict
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.store.rows import existing_run
from ringroad_lab.trial import Frozen
from ringroad_lab.web.audit import USER_PREFIX, Action, append, last_change
from ringroad_lab.web.tables import Annotation

MAX_COMMENT_CHARACTERS = 10_000
MAX_LINK_CHARACTERS = 2_000


class ReviewChangedError(LabError):
    """Another user changed the review in the meantime."""


class RunNotEndedError(LabError):
    """A run that has not ended cannot have a verdict."""


class Review(Frozen):
    """A tester's review of a run."""

    verdict: TesterVerdict | None = None
    comment: str = ""
    bug_link: str = ""

    @field_validator("comment")
    @classmethod
    def _check_comment(cls, comment: str) -> str:
        comment = comment.replace("\r\n", "\n").strip()
        if len(comment) > MAX_COMMENT_CHARACTERS:
            raise ValueError(f"a comment has at most {MAX_COMMENT_CHARACTERS} characters")
        if "\0" in comment:
            raise ValueError("a comment must not contain NUL")
        return comment

    @field_validator("bug_link")
    @classmethod
    def _check_bug_link(cls, link: str) -> str:
        link = link.strip()
        if link and not is_web_link(link):
            raise ValueError("a bug link begins with http:// or https:// and names a server; it has no spaces")
        return link


class StoredReview(Frozen):
    """A review as stored."""

    review: Review
    tester: str = ""
    """The user who changed the review last; empty if there is no review."""
    changed_at: float | None = None
    """Seconds since 1970."""
    last_change: int = 0
    """Number of the last entry of the audit log about the run."""

    def as_json(self) -> dict[str, Any]:
        """Return the review for programs (JSON)."""
        return {**self.review.model_dump(mode="json"), "tester": self.tester, "changed_at": self.changed_at}


def review_problems(error: ValidationError) -> list[str]:
    """Return the problems of an invalid review, a sentence each."""
    return [f"{one['loc'][0]}: {one['msg'].removeprefix('Value error, ')}" for one in error.errors()]


def is_web_link(link: str) -> bool:
    """Return whether a text is an HTTP or HTTPS URL that can be shown as a link."""
    if len(link) > MAX_LINK_CHARACTERS or not link.isprintable() or " " in link:
        return False
    try:
        parts = urlsplit(link)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


def read_review(store: ResultStore, run_id: str) -> StoredReview:
    """Return the review of a run.

    Raises:
        StoreError: the run does not exist.
    """
    with store.reading() as database:
        existing_run(database, run_id)
        return _read(database, run_id)


def change_review(store: ResultStore, run_id: str, review: Review, actor: str, seen_change: int, clock: Callable[[], float] = time) -> None:
    """Store a tester's review of a run if it differs from the stored review; `actor` is as in the audit log.

    Raises:
        StoreError: the run does not exist.
        RunNotEndedError: the review has a verdict, and the run has not ended.
        ReviewChangedError: the review was changed since `seen_change`.
    """
    with store.writing() as database:
        run = existing_run(database, run_id, is_locked=True)
        stored = _read(database, run_id)
        if stored.last_change != seen_change:
            raise ReviewChangedError(f"another user changed the review of run {run_id} in the meantime: read it, and try again")
        old, now, tester = stored.review, clock(), actor.removeprefix(USER_PREFIX)
        if review.verdict is not None and review.verdict is not old.verdict:
            if not run.is_ended:
                raise RunNotEndedError(f"run {run_id} has not ended: it cannot be judged yet")
            database.add(StoredVerdict(run_id=run_id, verdict=review.verdict, tester=tester, judged_at=now))
            append(database, now, actor, Action.VERDICT, run_id=run_id, old=old.verdict or "", new=review.verdict)
        if (review.comment, review.bug_link) != (old.comment, old.bug_link):
            database.add(Annotation(run_id=run_id, comment=review.comment, bug_link=review.bug_link, tester=tester, annotated_at=now))
        if review.comment != old.comment:
            append(database, now, actor, Action.COMMENT, run_id=run_id, old=old.comment, new=review.comment)
        if review.bug_link != old.bug_link:
            append(database, now, actor, Action.BUG_LINK, run_id=run_id, old=old.bug_link, new=review.bug_link)


def _read(database: Session, run_id: str) -> StoredReview:
    judgement = database.scalar(select(StoredVerdict).filter_by(run_id=run_id).order_by(StoredVerdict.id.desc()).limit(1))
    note = database.scalar(select(Annotation).filter_by(run_id=run_id).order_by(Annotation.id.desc()).limit(1))
    changes = [(row.judged_at, row.tester) for row in [judgement] if row] + [(row.annotated_at, row.tester) for row in [note] if row]
    changed_at, tester = max(changes, default=(None, ""))
    # Stored reviews were checked before they were stored.
    review = Review.model_construct(
        verdict=judgement.verdict if judgement else None,
        comment=note.comment if note else "",
        bug_link=note.bug_link if note else "",
    )
    return StoredReview.model_construct(review=review, tester=tester, changed_at=changed_at, last_change=last_change(database, run_id))
