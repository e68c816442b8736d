"""A message on its way to requests: rules are applied, and what comes of it is kept, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringroad_lab.fleet.request import Message
from ringroad_lab.fleet.requests import Added, Outcome, Requests
from ringroad_lab.fleet.rules import MessageError, NotJsonError, Rule, apply_rules


@dataclass(frozen=True)
class Received:
    """What became of a message."""

    outcome: Outcome
    added: Sequence[Added]
    problem: str = ""
    """Why nothing could be made of it."""
    is_json: bool = True

    @property
    def text(self) -> str:
        """For people."""
        numbers = ", ".join(str(each.id) for each in self.added)
        return f"{self.outcome}{f', request {numbers}' if numbers else ''}{f': {self.problem}' if self.problem else ''}"


def receive(requests: Requests, rules: Sequence[Rule], message: Message) -> Received:
    """Make requests of a message; one of which nothing can be made is kept as dead. All is in the store when this returns.

    Raises:
        StoreError: it is not; the same message may come again.
    """
    try:
        wanted = apply_rules(rules, message)
    except MessageError as error:
        outcome, added = requests.add_dead(message, str(error))
        return Received(outcome, [added] if added else [], str(error), not isinstance(error, NotJsonError))
    return Received(*requests.add(message, wanted))
