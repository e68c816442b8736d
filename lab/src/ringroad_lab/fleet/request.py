"""A request: a build, the scenario that measures it, and how far that has come."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from ringroad_lab.trial import Frozen, Moment

MAX_PAYLOAD_BYTES = 1 << 20
"""A longer message is refused."""
ANY_BED = "any"
"""The class of bed of a request that every machine may take."""
MEASURED = "measured"
"""The verdict on a run that was compared with nothing."""
NOT_INSTALLED = "not installed"
"""The verdict on a build that could not be had, or did not run."""


class RequestState(StrEnum):
    """How far a request has come."""

    NEW = "new"
    """Waits for a dispatcher."""
    SUBMITTED = "submitted"
    """Given to an engine, whose job has not begun."""
    RUNNING = "running"
    DONE = "done"
    """There is a run, and a verdict on it."""
    DEAD = "dead"
    """Given up; the reason stands beside it."""
    CANCELLED = "cancelled"
    """Somebody took it back."""
    SUPERSEDED = "superseded"
    """A newer build of the same package and tag took its place, or what was made of its message when that was replayed."""


_S = RequestState
TRANSITIONS: Mapping[RequestState, frozenset[RequestState]] = {
    _S.NEW: frozenset({_S.SUBMITTED, _S.CANCELLED, _S.SUPERSEDED, _S.DEAD}),
    # Back to new: the engine did not take it, or its job failed and is tried again.
    _S.SUBMITTED: frozenset({_S.NEW, _S.RUNNING, _S.DONE, _S.DEAD, _S.CANCELLED, _S.SUPERSEDED}),
    _S.RUNNING: frozenset({_S.NEW, _S.DONE, _S.DEAD, _S.CANCELLED}),
    # But for a build that could not be installed: see `may_be_retried`.
    _S.DONE: frozenset(),
    _S.DEAD: frozenset({_S.NEW, _S.SUPERSEDED}),
    _S.CANCELLED: frozenset({_S.NEW}),
    _S.SUPERSEDED: frozenset({_S.NEW}),
}
"""What may become of a request in each state."""
UNDER_WAY = (RequestState.SUBMITTED, RequestState.RUNNING)
GIVEN_UP = (RequestState.DEAD, RequestState.CANCELLED, RequestState.SUPERSEDED)


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("has a character that cannot be printed")
    return text


Word = Annotated[str, Field(max_length=200), AfterValidator(_printable)]
Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""Of a source, a class of bed."""
Setting = Annotated[str, Field(min_length=3, max_length=1000), AfterValidator(_printable)]


class Order(Frozen):
    """What is to be measured, beside the scenario's name."""

    layers: Annotated[tuple[Word, ...], Field(max_length=20)] = ()
    settings: Annotated[tuple[Setting, ...], Field(max_length=50)] = ()
    """Assignments as `--set` takes them."""
    labels: Annotated[dict[Annotated[Word, Field(min_length=1)], Word], Field(max_length=50)] = {}
    baseline: Word = ""
    """With which the run is compared; empty: none."""


class Wanted(Frozen):
    """What a message, or somebody at the command line, asks for."""

    build: Annotated[Word, Field(min_length=1)]
    scenario: Annotated[Word, Field(min_length=1)]
    bed_class: Name = ANY_BED
    order: Order = Order()
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """The greatest goes first."""
    owner: Word = ""
    """Between whom turns are shared out."""
    package: Word = ""
    """Where it is not empty, the newest build of this package and tag wins."""
    tag: Word = ""
    built_at: Moment


@dataclass(frozen=True)
class Message:
    """A message about a build, as a source received it."""

    source: str
    payload: bytes
    received_at: float
    event: str = ""
    """What the source calls this kind of message."""
    delivery: str = ""
    """By what the source knows this very message; empty where it has no such name."""


@dataclass(frozen=True)
class Change:
    """A change of a request's state."""

    changed_at: float
    old: str
    new: str
    actor: str
    why: str


@dataclass(frozen=True)
class Request:
    """A request, as the store has it."""

    id: int
    source: str
    build: str
    scenario: str
    bed_class: str
    state: RequestState
    order: Order
    package: str
    tag: str
    built_at: float
    priority: int
    owner: str
    attempts: int
    duplicates: int
    last_error: str
    event: str
    delivery: str
    superseded_by: int | None
    engine: str
    job_key: str
    lease_holder: str
    lease_until: float
    run_id: str | None
    verdict: str
    created_at: float
    changed_at: float
    beds: tuple[str, ...]
    """Of which its job may have one."""

    @property
    def may_be_retried(self) -> bool:
        """Whether it can be measured anew: it was given up, or its build could not be installed."""
        return may_be_retried(self.state, self.verdict) and not self.is_poison

    @property
    def is_poison(self) -> bool:
        """Whether it stands for a message of which nothing could be made."""
        return not self.scenario

    def as_json(self) -> dict[str, Any]:
        """Return it as programs read it."""
        left_out = {"state", "order", "lease_holder", "lease_until"}
        values = {name: value for name, value in vars(self).items() if name not in left_out}
        return values | {"state": self.state.value, **self.order.model_dump(mode="json")}


def may_be_retried(state: RequestState, verdict: str) -> bool:
    """Whether a request of this state and verdict can be measured anew."""
    return state in GIVEN_UP or (state is RequestState.DONE and verdict == NOT_INSTALLED)


def read_order(text: str) -> Order:
    """Return what a row says of its run."""
    return Order.model_validate(json.loads(text))
