"""The status of a commit at a forge: what all forges have in common."""

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

from ringroad_lab.fleet.request import MEASURED, RequestState, Word
from ringroad_lab.notification.http import Answer, check_url, post, server_of
from ringroad_lab.notification.interface import Notifier, Occasion, Sender, Stage, TemporaryError, UnsentError
from ringroad_lab.notification.message import Notice
from ringroad_lab.notification.settings import secret
from ringroad_lab.record import RunState
from ringroad_lab.report.plain_text import printable
from ringroad_lab.statistics.verdict import Verdict

COMMIT_LABEL, REPOSITORY_LABEL = "commit", "repository"
MAX_DESCRIPTION_CHARACTERS = 140
"""GitHub refuses a longer one."""
# A path of names that do not consist of dots alone, so that it stays below the forge's path of repositories.
_REPOSITORY = re.compile(r"(?!\.+(/|$))[\w.-]+(/(?!\.+(/|$))[\w.-]+)*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?", re.ASCII | re.IGNORECASE)
_GOOD = (Verdict.IMPROVEMENT, Verdict.NO_DIFFERENCE, MEASURED)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Status(StrEnum):
    """What is said of a commit."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCESS = "success"
    FAILURE = "failure"
    ERROR = "error"
    """Nothing can be said of the commit: the measurement failed."""
    CANCELLED = "cancelled"


class CommitStatus(Notifier):
    """A forge that shows what came of a commit. The labels `repository` and `commit` of the request or run say which commit that is."""

    forge: ClassVar[str]
    """For people."""

    stages: Annotated[tuple[Stage, ...], Field(min_length=1)] = tuple(Stage)
    on: Annotated[tuple[Occasion, ...], Field(min_length=1)] = (Occasion.ALWAYS,)
    api_url: Word
    token_file: Path | None = None
    token_env: str | None = None
    repositories: Annotated[tuple[Word, ...], Field(min_length=1, max_length=100)] = ("*",)
    """Globs of the repositories that may get a status, whatever a message says."""
    context: Annotated[Word, Field(min_length=1)] = "ringroad-lab"
    """Before the scenario, in the status's name."""
    fail_on_inconclusive: bool = False
    ca_file: Path | None = None
    """Certificates of the authorities that the server's is checked with; the system's unless given."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.token_file is None) is (self.token_env is None):
            raise ValueError("give one of token_file and token_env")
        parts = urlsplit(self.api_url)
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise ValueError("a token does not go over the network readable: write https")
        return self

    def make_sender(self) -> Sender:
        """Read the token.

        Raises:
            ScenarioError: it is not there, or the URL is none of HTTP.
        """
        check_url("api_url", self.api_url)
        return _StatusSender(self, secret(f"{self.forge}'s token", self.token_file, self.token_env) or "")

    def concerns(self, notice: Notice) -> bool:
        """Whether it is of a commit of these repositories."""
        repository = notice.labels.get(REPOSITORY_LABEL, "")
        is_ours = any(fnmatchcase(repository, glob) for glob in self.repositories)
        return bool(repository and notice.labels.get(COMMIT_LABEL)) and is_ours and super().concerns(notice)

    def status(self, notice: Notice) -> Status:
        """Return what is to be said of the commit."""
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
        """Return the name of the status: that of the same scenario takes its place."""
        scenario = notice.request.scenario if notice.request else notice.record.name if notice.record else ""
        return printable(f"{self.context}/{scenario}" if scenario else self.context)

    def description(self, notice: Notice) -> str:
        """Return what the forge shows beside it."""
        said = printable(notice.what_came)
        return said if len(said) <= MAX_DESCRIPTION_CHARACTERS else f"{said[: MAX_DESCRIPTION_CHARACTERS - 1]}\u2026"

    @abstractmethod
    def headers(self, token: str) -> Mapping[str, str]:
        """Return those that the forge wants."""

    @abstractmethod
    def message(self, notice: Notice, repository: str, commit: str) -> tuple[str, bytes]:
        """Return the path below the API's URL, and the body.

        Raises:
            UnsentError: there cannot be such a repository.
        """

    def is_there(self, notice: Notice, answer: Answer) -> bool:
        """Whether the answer says that the commit has this status already."""
        return False


class _StatusSender(Sender):
    def __init__(self, settings: CommitStatus, token: str) -> None:
        self._settings = settings
        self._token = token

    @property
    def address(self) -> str:
        return f"{self._settings.kind} {server_of(self._settings.api_url)}"

    def deliver(self, notice: Notice, delivery: str, within_s: float) -> None:
        settings = self._settings
        repository, commit = (notice.labels.get(name, "") for name in (REPOSITORY_LABEL, COMMIT_LABEL))
        if not _REPOSITORY.fullmatch(repository):
            raise UnsentError(f"the label {REPOSITORY_LABEL} names no repository: write OWNER/NAME")
        if not _COMMIT.fullmatch(commit):
            raise UnsentError(f"the label {COMMIT_LABEL} names no commit: write its whole hash")
        path, body = settings.message(notice, repository, commit.lower())
        url = f"{settings.api_url.rstrip('/')}/{path}"
        answer = post(url, body, settings.headers(self._token), within_s=within_s, ca_file=settings.ca_file)
        if answer.is_taken or settings.is_there(notice, answer):
            return
        said = printable(answer.body.decode(errors="replace"))[:300]
        why = (
            f"{settings.forge} answers with status {answer.status}: {said}"
            if said
            else f"{settings.forge} answers with status {answer.status}"
        )
        if answer.status == 403 and (answer.asked_wait_s or answer.headers.get("X-RateLimit-Remaining") == "0"):
            raise TemporaryError(why, answer.asked_wait_s)
        raise UnsentError(why)
