"""Tables of the web page, beside those of the results. Verdicts are the store's own: baselines go by them."""

from __future__ import annotations

from sqlalchemy import Double, ForeignKey, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from ringroad_lab.store.models import Base


class Token(Base):
    """What somebody logs in with, or a program shows."""

    __tablename__ = "api_token"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    """SHA-256, hexadecimal."""
    added_at: Mapped[float] = mapped_column(Double)


class Annotation(Base):
    """A tester's comment on a run, and the bug that it is about. Changing either adds a row; the last counts."""

    __tablename__ = "annotation"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("run.run_id"), index=True)
    comment: Mapped[str] = mapped_column(Text)
    bug_link: Mapped[str] = mapped_column(Text)
    tester: Mapped[str] = mapped_column(Text)
    annotated_at: Mapped[float] = mapped_column(Double)


class AuditEntry(Base):
    """A change: who, when, what, from what to what. Rows are added, and neither changed nor removed; the database itself refuses that."""

    __tablename__ = "audit_entry"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    changed_at: Mapped[float] = mapped_column(Double)
    actor: Mapped[str] = mapped_column(Text)
    """`user NAME`, `token NAME`, `command line`."""
    action: Mapped[str] = mapped_column(String(32))
    run_id: Mapped[str | None] = mapped_column(String(64), index=True)
    old: Mapped[str] = mapped_column(Text)
    new: Mapped[str] = mapped_column(Text)
