"""Sets the status of a commit at a forge: the common part of all forges."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from ringroad_lab.notification.http import Answer, check_url, post, server_of
from ringroad_lab.notification.interface import Notifier, Sender, TemporaryError, UnsentError
from ringroad_lab.notification.message import Notice, Occasion, Stage
from ringroad_lab.record import RunState
from ringroad_lab.report.plain_text import printable
from ringroad_lab.request.model import MEASURED, RequestState
from ringroad_lab.secret import secret
from ringroad_lab.statistics.verdict import Verdict
from ringroad_lab.text_types import Word

COMMIT_LABEL, REPOSITORY_LABEL = "commit", "repository"
MAX_DESCRIPTION_CHARACTERS = 140
"""GitHub rejects longer descriptions."""
# No path component consists only of dots, so the path stays below the forge's path of repositories.
_REPOSITORY = re.compile(r"(?!\.+(/|$))[\w.-]+(/(?!\.+(/|$))[\w.-]+)*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?", re.ASCII | re.IGNORECASE)
_GOOD = (Verdict.IMPROVEMENT, Verdict.NO_DIFFERENCE, MEASURED)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Status(StrEnum):
    """Status of a commit."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCESS = "success"
    FAILURE = "failure"
    ERROR = "error"
    """The measurement failed, so there is no result for the commit."""
    CANCELLED = "cancelled"


class CommitStatus(Notifier):
    """Sets the status of a commit at a forge. The labels `repository` and `commit` of the request or run identify the commit."""

    forge: ClassVar[str]
    """Name of the forge, for users."""

    stages: Annotated[tuple[Stage, ...], Field(min_length=1)] = tuple(Stage)
    on: Annotated[tuple[Occasion, ...], Field(min_length=1)] = (Occasion.ALWAYS,)
    api_url: Word
    token_file: Path | None = None
    token_env: str | None = None
    repositories: Annotated[tuple[Word, ...], Field(min_length=1, max_length=100)] = ("*",)
    """Globs of the repositories that can get a status, regardless of a message's content."""
    context: Annotated[Word, Field(min_length=1)] = "ringroad-lab"
    """Prefix of the status name, before the scenario."""
    fail_on_inconclusive: bool = False
    ca_file: Path | None = None
    """CA certificates for the server's certificate; default: the system's."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.token_file is None) is (self.token_env is None):
            raise ValueError("give one of token_file and token_env")
        parts = urlsplit(self.api_url)
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise ValueError("a token must not be sent unencrypted: use https")
        return self

    def make_sender(self) -> Sender:
        """Read the token.

        Raises:
            ScenarioError: the token is missing, or the URL is not an HTTP URL.
        """
        check_url("api_url", self.api_url)
        return _StatusSender(self, secret(f"{self.forge}'s token", self.token_file, self.token_env) or "")

    def concerns(self, notice: Notice) -> bool:
        """Return whether the notice is about a commit of these repositories."""
        repository = notice.labels.get(REPOSITORY_LABEL, "")
        is_ours = any(fnmatchcase(repository, glob) for glob in self.repositories)
        return bool(repository and notice.labels.get(COMMIT_LABEL)) and is_ours and super().concerns(notice)

    def status(self, notice: Notice) -> Status:
        """Return the status of the commit."""
        if notice.stage is Stage.QUEUED:
            return Status.QUEUED
        if notice.stage is Stage.RUNNING:
            return Status.RUNNING
        if notice.stage is Stage.ERROR:
            return Status.ERROR if notice.outcome == RequestState.DEAD else Status.CANCELLED
        if notice.verdict == Verdict.INVALID or (notice.record and notice.record.state is RunState.FAILED):
            return Status.ERROR
        is_good = notice.verdict in _GOOD or (notice.verdict == Verdict.INCONCLUSIVE and not self.fail_on_inconclusive)
        return Status.SUCCESS if is_good else Status.FAILURE

    def title_of(self, notice: Notice) -> str:
        """Return the name of the status: a newer status of the same scenario replaces it."""
        scenario = notice.request.scenario if notice.request else notice.record.name if notice.record else ""
        return printable(f"{self.context}/{scenario}" if scenario else self.context)

    def description(self, notice: Notice) -> str:
        """Return the description that the forge shows with the status."""
        text = printable(notice.what_came)
        return text if len(text) <= MAX_DESCRIPTION_CHARACTERS else f"{text[: MAX_DESCRIPTION_CHARACTERS - 1]}\u2026"

    @abstractmethod
    def headers(self, token: str) -> Mapping[str, str]:
        """Return the HTTP headers that the forge requires."""

    @abstractmethod
    def message(self, notice: Notice, repository: str, commit: str) -> tuple[str, bytes]:
        """Return the path below the API's URL, and the body.

        Raises:
            UnsentError: the repository is invalid.
        """

    def is_there(self, notice: Notice, answer: Answer) -> bool:
        """Return whether the answer reports that the commit already has this status."""
        return False


class _StatusSender(Sender):
    def __init__(self, settings: CommitStatus, token: str) -> None:
        self._settings = settings
        self._token = token
        self.address = f"{settings.forge.lower()} {server_of(settings.api_url)}"

    def deliver(self, notice: Notice, delivery: str, within_s: float) -> None:
        settings = self._settings
        repository, commit = (notice.labels.get(name, "") for name in (REPOSITORY_LABEL, COMMIT_LABEL))
        if not _REPOSITORY.fullmatch(repository):
            raise UnsentError(f"the label {REPOSITORY_LABEL} is not a repository: use OWNER/NAME")
        if not _COMMIT.fullmatch(commit):
            raise UnsentError(f"the label {COMMIT_LABEL} is not a commit: use the full hash")
        path, body = settings.message(notice, repository, commit.lower())
        url = f"{settings.api_url.rstrip('/')}/{path}"
        answer = post(url, body, settings.headers(self._token), within_s=within_s, ca_file=settings.ca_file)
        if answer.is_taken or settings.is_there(notice, answer):
            return
        message = printable(answer.body.decode(errors="replace"))[:300]
        why = (
            f"{settings.forge} answers with status {answer.status}: {message}"
            if message
            else f"{settings.forge} answers with status {answer.status}"
        )
        if answer.status == 403 and (answer.asked_wait_s or answer.headers.get("X-RateLimit-Remaining") == "0"):
            raise TemporaryError(why, answer.asked_wait_s)
        raise UnsentError(why)
