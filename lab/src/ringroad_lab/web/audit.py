"""The audit log: testers' verdicts, uploaded runs, and added and removed tokens."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ringroad_lab.web.tables import AuditEntry

# The actor of a change: `user NAME`, `token NAME`, or
COMMAND_LINE = "command line"
USER_PREFIX = "user "


class Action(StrEnum):
    """Kinds of changes."""

    VERDICT = "verdict"
    COMMENT = "comment"
    BUG_LINK = "bug link"
    RUN_IMPORTED = "run imported"
    TOKEN_ADDED = "token added"
    TOKEN_REMOVED = "token removed"


def append(database: Session, at: float, actor: str, action: Action, *, run_id: str | None = None, old: str = "", new: str = "") -> None:
    """Append an entry, in the transaction of the change itself."""
    database.add(AuditEntry(changed_at=at, actor=actor, action=action.value, run_id=run_id, old=old, new=new))


def last_change(database: Session, run_id: str) -> int:
    """Return the number of the last entry about a run; 0 if there is none."""
    return database.scalar(select(func.max(AuditEntry.id)).where(AuditEntry.run_id == run_id)) or 0


def entries(database: Session, *, run_id: str | None = None, limit: int, offset: int = 0) -> tuple[Sequence[AuditEntry], int]:
    """Return entries, newest first, and the total number."""
    query = select(AuditEntry)
    if run_id is not None:
        query = query.where(AuditEntry.run_id == run_id)
    total = database.scalar(select(func.count()).select_from(query.subquery())) or 0
    return database.scalars(query.order_by(AuditEntry.id.desc()).limit(limit).offset(offset)).all(), total
