"""A message about a build, and its fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ringroad_lab.errors import LabError

MAX_PAYLOAD_BYTES = 1 << 20
"""A longer message is rejected."""
# Fields that are not in the message itself.
_EVENT, _SOURCE = "@event", "@source"


class MessageError(LabError):
    """A message is unusable."""


class NotJsonError(MessageError):
    """A message is not a JSON object."""


@dataclass(frozen=True)
class Message:
    """A message about a build, as a source received it."""

    source: str
    payload: bytes
    received_at: float
    event: str = ""
    """The source's name for this kind of message."""
    delivery: str = ""
    """The source's identifier of this message; empty if the source has none."""


def read_payload(payload: bytes) -> dict[str, Any]:
    """Return a message's fields.

    Raises:
        NotJsonError: the message is not JSON, or not an object.
    """
    try:
        tree = json.loads(payload.decode(), parse_constant=_reject)
    except (ValueError, RecursionError) as error:
        raise NotJsonError(f"the message is not JSON: {str(error)[:200] or 'nested too deep'}") from error
    if not isinstance(tree, dict):
        raise NotJsonError("the message is JSON, but not an object: its fields must have names")
    return tree


def field(tree: Mapping[str, Any], message: Message, path: str) -> object:
    """Return a field of a message by its dotted path, such as `commits.0.id`; None if it is missing or null."""
    if path == _EVENT:
        return message.event
    if path == _SOURCE:
        return message.source
    here: Any = tree
    for part in path.split("."):
        if isinstance(here, Mapping):
            here = here.get(part)
        elif isinstance(here, list) and part.isascii() and part.isdigit() and len(part) < 10:
            here = here[int(part)] if int(part) < len(here) else None
        else:
            return None
    return here


def _reject(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")
