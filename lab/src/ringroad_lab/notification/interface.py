"""Interface of notifiers: the class of a kind validates a table `[[KIND]]` in `notifications.toml` and creates its sender."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar

from pydantic import Field

from ringroad_lab.kinds import Kinds
from ringroad_lab.notification.message import Notice, Occasion, Stage
from ringroad_lab.trial import Frozen


class UnsentError(Exception):
    """The notification was rejected permanently: a retry will not succeed. The text contains no secret."""


class TemporaryError(UnsentError):
    """The notification was not sent; a retry may succeed. The text contains no secret."""

    def __init__(self, reason: str, wait_s: float = 0.0) -> None:
        """Take the reason, and how long the server requests to wait."""
        super().__init__(reason)
        self.wait_s = wait_s


class Sender(ABC):
    """Delivers notices to one recipient. Several threads call it; it keeps no state between two notices."""

    address: str
    """The recipient, for users: without secrets, and the same at each start."""

    @abstractmethod
    def deliver(self, notice: Notice, delivery: str, within_s: float) -> None:
        """Try once to deliver a notice, for about `within_s`.

        `delivery` is a UUID, the same at each try to send this notice to this recipient. It is sent along if the recipient can use it to
        detect duplicates: a try can succeed although its answer is lost.

        Raises:
            TemporaryError: a retry may succeed.
            UnsentError: no retry will succeed.
        """


class Notifier(Frozen):
    """Settings of a recipient, common to all kinds."""

    title: ClassVar[str]
    """Description for users."""

    name: Annotated[str, Field(max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    """Name of the recipient for users and the store; default: its address."""
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)] = (Stage.COMPLETE, Stage.ERROR)
    on: Annotated[tuple[Occasion, ...], Field(min_length=1)] = (Occasion.REGRESSION, Occasion.FAILURE)
    """Results that cause a notification at the stages `complete` and `error`."""
    within_s: Annotated[float, Field(gt=0, le=600)] = 30.0
    """Time limit for a try; in `run`, for all tries together."""
    for_days: Annotated[float, Field(gt=0, le=365)] = 7.0
    """Number of days that a dispatcher retries."""
    web_url: Annotated[str, Field(max_length=500, pattern=r"^(https?://[^\s?#]+)?$")] = ""
    """URL of the laboratory's web page, for links."""

    @abstractmethod
    def make_sender(self) -> Sender:
        """Create the sender. It reads its secrets now, so that an error appears before the run begins.

        Raises:
            LabError: a secret is missing, or a setting is invalid.
        """

    def concerns(self, notice: Notice) -> bool:
        """Return whether this recipient gets the notice."""
        return notice.stage in self.stages and (not notice.stage.is_end or bool(notice.occasions & set(self.on)))

    def link(self, notice: Notice) -> str:
        """Return the URL of the web page of the run or request; empty without `web_url`."""
        if not self.web_url:
            return ""
        what = f"runs/{notice.record.run_id}" if notice.record else f"requests/{notice.request.id}" if notice.request else "requests"
        return f"{self.web_url.rstrip('/')}/{what}"


# Kinds of notification targets in `notifications.toml`.
NOTIFIERS: Kinds[Notifier] = Kinds(
    "ringroad_lab.notifiers",
    Notifier,
    {
        "webhook": "notification.webhook:Webhook",
        "mail": "notification.mail:Mail",
        "github": "notification.github:GithubStatus",
        "gitlab": "notification.gitlab:GitlabStatus",
        "report": "notification.report_file:ReportFile",
        "ci-message": "notification.ci_message:CiMessage",
    },
)
