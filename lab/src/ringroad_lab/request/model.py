"""The states of a request, and what it wants to be measured."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

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
    # Only a user can have it measured again: see `may_be_retried`.
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
    supersedes: Word = ""
    """The run that this run replaces; empty: none."""

    def run_arguments(self, scenario: str) -> tuple[str, ...]:
        """Return the arguments of `ringroad-lab` for the run of a scenario; the comparison is not the run's."""
        return (
            "run",
            scenario,
            *(f"--layer={layer}" for layer in self.layers),
            *(f"--set={setting}" for setting in self.settings),
            *(f"--label={name}={value}" for name, value in self.labels.items()),
            *([f"--supersedes={self.supersedes}"] if self.supersedes else []),
        )


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
