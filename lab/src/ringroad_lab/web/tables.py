"""Tables of the web page, besides the tables of the results. Verdicts are in the store's tables, because baselines depend on them."""

from __future__ import annotations

from sqlalchemy import Double, ForeignKey, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from ringroad_lab.store.models import Base


class Token(Base):
    """A token, with which a user logs in or a program authenticates."""

    __tablename__ = "api_token"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    """SHA-256, hexadecimal."""
    added_at: Mapped[float] = mapped_column(Double)


class Annotation(Base):
    """A tester's comment on a run, and a link to a bug. A change adds a row; the last row counts."""

    __tablename__ = "annotation"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("run.run_id"), index=True)
    comment: Mapped[str] = mapped_column(Text)
    bug_link: Mapped[str] = mapped_column(Text)
    tester: Mapped[str] = mapped_column(Text)
    annotated_at: Mapped[float] = mapped_column(Double)


class AuditEntry(Base):
    """A change: time, actor, action, old and new value. Rows are only added; the database itself refuses to change or remove them."""

    __tablename__ = "audit_entry"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    changed_at: Mapped[float] = mapped_column(Double)
    actor: Mapped[str] = mapped_column(Text)
    """`user NAME`, `token NAME`, `command line`."""
    action: Mapped[str] = mapped_column(String(32))
    run_id: Mapped[str | None] = mapped_column(String(64), index=True)
    old: Mapped[str] = mapped_column(Text)
    new: Mapped[str] = mapped_column(Text)
