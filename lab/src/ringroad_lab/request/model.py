"""A request: a build, the scenario that measures it, and its state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

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
    # Except for a build that could not be installed: see `may_be_retried`.
    _S.DONE: frozenset(),
    _S.DEAD: frozenset({_S.NEW, _S.SUPERSEDED}),
    _S.CANCELLED: frozenset({_S.NEW}),
    _S.SUPERSEDED: frozenset({_S.NEW}),
}
"""The allowed next states of each state."""
UNDER_WAY = (RequestState.SUBMITTED, RequestState.RUNNING)
GIVEN_UP = (RequestState.DEAD, RequestState.CANCELLED, RequestState.SUPERSEDED)


class Order(Frozen):
    """What to measure, besides the scenario's name."""

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
    """If not empty, the newest build of this package and tag supersedes older ones."""
    tag: Word = ""
    built_at: Moment


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
    """A request, as stored."""

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
    """Its job can take one of these beds."""

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
        left_out = {"state", "order", "lease_holder", "lease_until"}
        values = {name: value for name, value in vars(self).items() if name not in left_out}
        return values | {"state": self.state.value, **self.order.model_dump(mode="json")}


def may_be_retried(state: RequestState, verdict: str) -> bool:
    """Whether a request of this state and verdict can be measured again."""
    return state in GIVEN_UP or (state is RequestState.DONE and verdict == NOT_INSTALLED)


def read_order(text: str) -> Order:
    """Return the order stored in a row."""
    return Order.model_validate(json.loads(text))
