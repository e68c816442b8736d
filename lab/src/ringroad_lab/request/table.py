"""Requests in the store: the tables of requests and of their changes."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Double, ForeignKey, Index, Integer, LargeBinary, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from ringroad_lab.request.model import GIVEN_UP, Order, RequestState
from ringroad_lab.store.column_types import enum_text, model_text, words_text
from ringroad_lab.store.models import Base


class Request(Base):
    """A request to measure a build with a scenario. This table is the authoritative state of queued, active and finished work."""

    __tablename__ = "request"
    __table_args__ = (
        Index("uq_request_key", "source", "build", "scenario", "bed_class", unique=True),
        Index(None, "state", "bed_class"),
        Index(None, "package", "tag"),
        Index(None, "source", "delivery"),
        Index(None, "owner", "priority", "served_at"),
    )

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    source: Mapped[str] = mapped_column(String(64))
    build: Mapped[str] = mapped_column(Text)
    scenario: Mapped[str] = mapped_column(Text)
    bed_class: Mapped[str] = mapped_column(String(64))
    state: Mapped[RequestState] = mapped_column(enum_text(RequestState, 16), default=RequestState.NEW)
    order: Mapped[Order] = mapped_column(model_text(Order), default=Order())
    """The run's options, JSON."""
    package: Mapped[str] = mapped_column(Text, default="")
    """The newest build of this package and tag supersedes the others; empty: no build supersedes another."""
    tag: Mapped[str] = mapped_column(Text, default="")
    built_at: Mapped[float] = mapped_column(Double)
    """Build time from the message; else the time at which the message was received."""
    priority: Mapped[int] = mapped_column(Integer, default=0)
    owner: Mapped[str] = mapped_column(Text, default="")
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    duplicates: Mapped[int] = mapped_column(Integer, default=0)
    """Number of times that the same request was received again."""
    last_error: Mapped[str] = mapped_column(Text, default="")
    event: Mapped[str] = mapped_column(Text)
    """The source's name for the kind of message."""
    delivery: Mapped[str] = mapped_column(Text)
    """The source's id of the message; empty if it has none."""
    payload: Mapped[bytes] = mapped_column(LargeBinary)
    """The message as it was received."""
    superseded_by: Mapped[int | None] = mapped_column(ForeignKey("request.id"))
    engine: Mapped[str] = mapped_column(String(64), default="")
    job_key: Mapped[str] = mapped_column(Text, default="")
    """The engine's id of the job."""
    lease_holder: Mapped[str] = mapped_column(Text, default="")
    """The dispatcher that handles the request; empty: none."""
    lease_until: Mapped[float] = mapped_column(Double, default=0.0)
    not_before: Mapped[float] = mapped_column(Double, default=0.0)
    """Earliest time of the next attempt."""
    run_id: Mapped[str | None] = mapped_column(String(64), index=True)
    """No foreign key: the id is assigned before the run is stored."""
    verdict: Mapped[str] = mapped_column(String(32), default="")
    created_at: Mapped[float] = mapped_column(Double)
    changed_at: Mapped[float] = mapped_column(Double)
    served_at: Mapped[float] = mapped_column(Double, default=0.0)
    """Time at which a dispatcher last claimed the request; 0: never."""
    beds: Mapped[tuple[str, ...]] = mapped_column(words_text(), default=(), server_default="")
    """Names of the beds that the job can take; empty: the fleet has no beds, or there is no job."""

    @property
    def may_be_retried(self) -> bool:
        """Whether the request can be measured again: it has ended."""
        return self.state in (*GIVEN_UP, RequestState.DONE) and not self.is_poison

    @property
    def is_poison(self) -> bool:
        """Whether the request stands for an unusable message."""
        return not self.scenario

    def as_json(self) -> dict[str, Any]:
        """Return the request for programs (JSON)."""
        values = self.values("payload", "state", "order", "lease_holder", "lease_until", "not_before", "served_at")
        return values | {"state": self.state.value, **self.order.model_dump(mode="json")}


class RequestChange(Base):
    """A change of a request's state: time, actor and reason. Rows are only added."""

    __tablename__ = "request_change"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    request_id: Mapped[int] = mapped_column(ForeignKey("request.id"), index=True)
    changed_at: Mapped[float] = mapped_column(Double)
    old: Mapped[str] = mapped_column(String(16))
    """Empty at the creation of the request."""
    new: Mapped[str] = mapped_column(String(16))
    actor: Mapped[str] = mapped_column(Text)
    why: Mapped[str] = mapped_column(Text)

    def as_json(self) -> dict[str, Any]:
        """Return the change for programs (JSON)."""
        return self.values("id", "request_id")
