"""Turns a message into requests: applies the rules, and stores the result in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringroad_lab.fleet.requests import Added, MessageOutcome, Requests
from ringroad_lab.fleet.rules import MessageRule, apply_rules
from ringroad_lab.request.message import Message, MessageError, NotJsonError


@dataclass(frozen=True)
class Received:
    """The result of a message."""

    outcome: MessageOutcome
    added: Sequence[Added]
    problem: str = ""
    """Reason why the message is unusable."""
    is_json: bool = True

    @property
    def text(self) -> str:
        """The result as text for users."""
        numbers = ", ".join(str(each.id) for each in self.added)
        return f"{self.outcome}{f', request {numbers}' if numbers else ''}{f': {self.problem}' if self.problem else ''}"


def receive(requests: Requests, rules: Sequence[MessageRule], message: Message) -> Received:
    """Make requests from a message; keep an unusable message as dead. The result is stored when this returns.

    Raises:
        StoreError: the result is not stored; the source can deliver the message again.
    """
    try:
        wanted = apply_rules(rules, message)
    except MessageError as error:
        return keep_dead(requests, message, str(error), is_json=not isinstance(error, NotJsonError))
    return Received(*requests.add(message, wanted))


def keep_dead(requests: Requests, message: Message, reason: str, *, is_json: bool = True) -> Received:
    """Keep an unusable message as a dead request.

    Raises:
        StoreError: it is not stored; the source can deliver the message again.
    """
    outcome, added = requests.add_dead(message, reason)
    return Received(outcome, [added] if added else [], reason, is_json)
