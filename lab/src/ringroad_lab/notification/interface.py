"""Who is told, and by what way: a kind's class is a table `[[KIND]]` in `notifications.toml`, checked, and it makes what delivers by it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from ringroad_lab.trial import Frozen

if TYPE_CHECKING:
    from ringroad_lab.notification.message import Notice


class Stage(StrEnum):
    """How far what is told of has come."""

    QUEUED = "queued"
    """The request waits for its turn."""
    RUNNING = "running"
    COMPLETE = "complete"
    """There are a run and a verdict."""
    ERROR = "error"
    """There will be none: the request was given up, cancelled or superseded."""


class Occasion(StrEnum):
    """What of the end is told."""

    REGRESSION = "regression"
    """The comparison shows one."""
    FAILURE = "failure"
    """The run failed, a measurement is invalid, or the request is dead."""
    ALWAYS = "always"


class UnsentError(Exception):
    """It was refused for good: a later try will not succeed. The text holds no secret."""


class TemporaryError(UnsentError):
    """It was not sent; a later try may succeed. The text holds no secret."""

    def __init__(self, reason: str, wait_s: float = 0.0) -> None:
        """Take the reason, and how long the other side asks to wait."""
        super().__init__(reason)
        self.wait_s = wait_s


class Sender(ABC):
    """Delivers to one of those who are told. It is asked from several threads, and keeps nothing between two notices."""

    @property
    @abstractmethod
    def address(self) -> str:
        """Whom it tells, for people: without a secret, and the same at each start."""

    @abstractmethod
    def deliver(self, notice: Notice, delivery: str, within_s: float) -> None:
        """Try once, for about so long.

        The delivery is a UUID, the same at each try to tell this notice to this one: where the other side can tell duplicates by it, it is
        sent along, as a try may succeed without anybody here knowing.

        Raises:
            TemporaryError: a later try may succeed.
            UnsentError: none will.
        """


class Notifier(Frozen):
    """Settings of one who is told; all kinds have these."""

    kind: ClassVar[str]
    """As `notifications.toml` names it: `webhook`."""
    title: ClassVar[str]
    """For people."""

    name: Annotated[str, Field(max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    """By which people and the store know this one; where it lives, unless given."""
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)] = (Stage.COMPLETE, Stage.ERROR)
    on: Annotated[tuple[Occasion, ...], Field(min_length=1)] = (Occasion.REGRESSION, Occasion.FAILURE)
    """Which ends are told, at the stages `complete` and `error`."""
    within_s: Annotated[float, Field(gt=0, le=600)] = 30.0
    """A try takes no longer, and `run` tries no longer."""
    for_days: Annotated[float, Field(gt=0, le=365)] = 7.0
    """A dispatcher tries again for so long."""
    web_url: Annotated[str, Field(max_length=500, pattern=r"^(https?://[^\s?#]+)?$")] = ""
    """Where the laboratory's web page is, for links to it."""

    @abstractmethod
    def make_sender(self) -> Sender:
        """Make what delivers; what it needs, as secrets, is read now, so that nothing begins that would be told to nobody.

        Raises:
            LabError: a secret is not there, or a setting is wrong.
        """

    def concerns(self, notice: Notice) -> bool:
        """Whether this one is to be told."""
        is_end = notice.stage in (Stage.COMPLETE, Stage.ERROR)
        return notice.stage in self.stages and (not is_end or bool(notice.occasions & set(self.on)))

    def link(self, notice: Notice) -> str:
        """Return the URL of the page of what is told of; empty where it is not known."""
        if not self.web_url:
            return ""
        what = f"runs/{notice.record.run_id}" if notice.record else f"requests/{notice.request.id}" if notice.request else "requests"
        return f"{self.web_url.rstrip('/')}/{what}"
