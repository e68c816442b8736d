"""Interfaces of sources of messages about builds. The class of a source checks its table `[source.NAME]` in `fleet.toml`."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ringroad_lab.fleet.requests import Requests
from ringroad_lab.fleet.rules import MessageRule
from ringroad_lab.kinds import Kinds
from ringroad_lab.trial import Frozen


@dataclass(frozen=True)
class Intake:
    """Destination of a source's messages and reports."""

    requests: Requests
    rules: Sequence[MessageRule]
    say: Callable[[str], None] = print
    clock: Callable[[], float] = time.time


class Watcher(ABC):
    """A running source in a dispatcher, which polls it regularly."""

    @abstractmethod
    def look(self) -> None:
        """Take the available messages. Must return within about a second: requests wait meanwhile.

        Raises:
            LabError: the source cannot be reached, or the store failed. Messages that were not taken are found again.
        """

    def close(self) -> None:
        """Stop, because the dispatcher stops."""


class Hook(ABC):
    """A running source in `ringroad-lab serve`, which passes it the requests to `/hooks/NAME`."""

    @abstractmethod
    def is_signed(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Return whether a message is from the source. The check takes constant time."""

    @abstractmethod
    def event(self, headers: Mapping[str, str]) -> str:
        """Return the source's name for the kind of message; empty if there is none."""

    @abstractmethod
    def delivery(self, headers: Mapping[str, str]) -> str:
        """Return the source's identifier of the message; empty if there is none."""


class Source(Frozen):
    """Settings of a source; makes the watcher or hook with these settings."""

    title: ClassVar[str]

    def watcher(self, name: str, intake: Intake) -> Watcher | None:
        """Return the watcher that polls for messages; None if they are sent to a hook.

        Raises:
            LabError: a setting is invalid, or a secret is missing.
        """
        return None

    def hook(self, name: str) -> Hook | None:
        """Return the hook for messages sent by HTTP; None if there are none.

        Raises:
            LabError: a secret is missing.
        """
        return None


# Sources of messages about builds, which become requests.
SOURCES: Kinds[Source] = Kinds(
    "ringroad_lab.sources",
    Source,
    {
        "github": "fleet.sources.http:GithubSource",
        "gitlab": "fleet.sources.http:GitlabSource",
        "gitea": "fleet.sources.http:GiteaSource",
        "generic": "fleet.sources.http:GenericSource",
        "folder": "fleet.sources.folder:FolderSource",
        "repository": "fleet.sources.repository:RepositorySource",
        "amqp": "fleet.sources.amqp:AmqpSource",
        "koji": "fleet.sources.koji:KojiSource",
    },
)
