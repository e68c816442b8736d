"""A request: a build, the scenario that measures it, and its state."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import Double, ForeignKey, Index, Integer, LargeBinary, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from ringroad_lab.store.column_types import enum_text, model_text, words_text
from ringroad_lab.store.models import Base
from ringroad_lab.text_types import Name, Setting, Word
from ringroad_lab.trial import Frozen, Moment

ANY_BED = "any"
"""The bed class of a request that every machine can take."""
MEASURED = "measured"
"""The verdict on a run without a comparison."""
NOT_INSTALLED = "not installed"
"""The verdict on a build that was not available, or did not run."""


class RequestState(StrEnum):
    """The state of a request."""

    NEW = "new"
    """Waits for a dispatcher."""
    SUBMITTED = "submitted"
    """Submitted to an engine; its job has not begun."""
    RUNNING = "running"
    DONE = "done"
    """The run has ended and has a verdict."""
    DEAD = "dead"
    """Given up; `last_error` has the reason."""
    CANCELLED = "cancelled"
    """A user cancelled the request."""
    SUPERSEDED = "superseded"
    """Replaced by a newer build of the same package and tag, or by a request from the replay of its message."""


_S = RequestState
TRANSITIONS: Mapping[RequestState, frozenset[RequestState]] = {
    _S.NEW: frozenset({_S.SUBMITTED, _S.CANCELLED, _S.SUPERSEDED, _S.DEAD}),
    # Back to new: the engine did not accept the job, or the job failed and is retried.
    _S.SUBMITTED: frozenset({_S.NEW, _S.RUNNING, _S.DONE, _S.DEAD, _S.CANCELLED, _S.SUPERSEDED}),
    _S.RUNNING: frozenset({_S.NEW, _S.DONE, _S.DEAD, _S.CANCELLED}),
    # A build that could not be installed is an exception: see `may_be_retried`.
    _S.DONE: frozenset(),
    _S.DEAD: frozenset({_S.NEW, _S.SUPERSEDED}),
    _S.CANCELLED: frozenset({_S.NEW}),
    _S.SUPERSEDED: frozenset({_S.NEW}),
}
"""The allowed next states of each state."""
UNDER_WAY = (RequestState.SUBMITTED, RequestState.RUNNING)
GIVEN_UP = (RequestState.DEAD, RequestState.CANCELLED, RequestState.SUPERSEDED)


class Order(Frozen):
    """The options of a run, besides the scenario's name."""

    layers: Annotated[tuple[Word, ...], Field(max_length=20)] = ()
    settings: Annotated[tuple[Setting, ...], Field(max_length=50)] = ()
    """Assignments in the form of `--set`."""
    labels: Annotated[dict[Annotated[Word, Field(min_length=1)], Word], Field(max_length=50)] = {}
    baseline: Word = ""
    """The run is compared with this baseline; empty for no comparison."""


class Wanted(Frozen):
    """A measurement that a message or a user requests."""

    build: Annotated[Word, Field(min_length=1)]
    scenario: Annotated[Word, Field(min_length=1)]
    bed_class: Name = ANY_BED
    order: Order = Order()
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """The highest goes first."""
    owner: Word = ""
    """Owners take turns."""
    package: Word = ""
    """Package whose newest build of the tag supersedes older ones; empty: none is superseded."""
    tag: Word = ""
    built_at: Moment


def may_be_retried(state: RequestState, verdict: str) -> bool:
    """Return whether a request of this state and verdict can be measured again."""
    return state in GIVEN_UP or (state is RequestState.DONE and verdict == NOT_INSTALLED)


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
    """Layers, settings, labels and baseline of the run, JSON."""
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
        """Whether the request can be measured again: it was given up, or its build could not be installed."""
        return may_be_retried(self.state, self.verdict) and not self.is_poison

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
