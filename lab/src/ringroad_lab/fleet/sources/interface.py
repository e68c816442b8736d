"""What a source is: a place where messages about builds come from. Its class is its table `[source.NAME]` in `fleet.toml`, checked."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ringroad_lab.fleet.requests import Requests
from ringroad_lab.fleet.rules import Rule
from ringroad_lab.trial import Frozen


@dataclass(frozen=True)
class Intake:
    """Where a source puts its messages, and whom it tells."""

    requests: Requests
    rules: Sequence[Rule]
    say: Callable[[str], None] = print
    clock: Callable[[], float] = time.time


class Watcher(ABC):
    """A source at work in a dispatcher, which has it look every now and then."""

    @abstractmethod
    def look(self) -> None:
        """Take the messages that are there. It returns within a second or so: requests wait meanwhile.

        Raises:
            LabError: the source cannot be reached, or the store failed. What was not taken is found again.
        """

    def close(self) -> None:
        """End: the dispatcher does."""


class Hook(ABC):
    """A source at work in `ringroad-lab serve`, which hands it what comes to `/hooks/NAME`."""

    @abstractmethod
    def is_signed(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether a message is the source's. It takes as long whatever is wrong."""

    @abstractmethod
    def event(self, headers: Mapping[str, str]) -> str:
        """Return what the source calls the kind of message; empty where it says nothing."""

    @abstractmethod
    def delivery(self, headers: Mapping[str, str]) -> str:
        """Return by what the source knows the message; empty where it says nothing."""


class Source(Frozen):
    """Settings of a source; it makes the watcher or the hook that works by them."""

    kind: ClassVar[str]
    title: ClassVar[str]

    def watcher(self, name: str, intake: Intake) -> Watcher | None:
        """Return what looks for messages; None where they are sent.

        Raises:
            LabError: a setting is wrong, or a secret is not there.
        """
        return None

    def hook(self, name: str) -> Hook | None:
        """Return what takes messages that are sent by HTTP; None where there are none.

        Raises:
            LabError: a secret is not there.
        """
        return None
