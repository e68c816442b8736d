"""Build systems that send by HTTP: how each signs its messages, and names their kind and delivery."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from pydantic import model_validator

from ringroad_lab.fleet.request import Word
from ringroad_lab.fleet.sources.interface import Hook, Source
from ringroad_lab.notification.settings import secret


@dataclass(frozen=True)
class Dialect:
    """The headers of a kind of build system."""

    secret: str
    """Signature, or the secret itself."""
    event: str
    deliveries: tuple[str, ...]
    """Of these the first that is there names the delivery; the same where a message is sent again."""
    prefix: str = ""
    """Of the signature."""
    is_token: bool = False
    """Whether the header has the secret itself."""


@dataclass(frozen=True)
class HttpHook(Hook):
    """A source that sends by HTTP, with its secret."""

    dialect: Dialect
    secret: bytes = field(repr=False)

    def is_signed(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether a message is the source's. It takes as long whatever is wrong."""
        shown = headers.get(self.dialect.secret, "").encode("utf-8", "surrogateescape")
        if self.dialect.is_token:
            return hmac.compare_digest(hashlib.sha256(shown).digest(), hashlib.sha256(self.secret).digest())
        right = self.dialect.prefix + hmac.new(self.secret, body, hashlib.sha256).hexdigest()
        return hmac.compare_digest(shown, right.encode())

    def event(self, headers: Mapping[str, str]) -> str:
        """Return what the source calls the kind of message; empty where it says nothing."""
        return headers.get(self.dialect.event, "")

    def delivery(self, headers: Mapping[str, str]) -> str:
        """Return by what the source knows the message; empty where it says nothing."""
        return next((headers[name] for name in self.dialect.deliveries if headers.get(name)), "")


class HttpSource(Source):
    """A build system that sends its messages to `/hooks/NAME` of `ringroad-lab serve`."""

    dialect: ClassVar[Dialect]

    secret_file: Path | None = None
    secret_env: Word | None = None
    """Where the secret is by which its messages are known."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.secret_file is None) is (self.secret_env is None):
            raise ValueError("give one of secret_file and secret_env")
        return self

    def hook(self, name: str) -> Hook:
        """Return what takes its messages.

        Raises:
            ScenarioError: its secret is not there.
        """
        return HttpHook(self.dialect, (secret(f"source '{name}'", self.secret_file, self.secret_env) or "").encode())


class GithubSource(HttpSource):
    """https://docs.github.com/en/webhooks/webhook-events-and-payloads."""

    kind = "github"
    title = "GitHub sends by HTTP"
    dialect = Dialect("X-Hub-Signature-256", "X-GitHub-Event", ("X-GitHub-Delivery",), prefix="sha256=")


class GitlabSource(HttpSource):
    """https://docs.gitlab.com/user/project/integrations/webhooks/."""

    kind = "gitlab"
    title = "GitLab sends by HTTP"
    dialect = Dialect("X-Gitlab-Token", "X-Gitlab-Event", ("Idempotency-Key", "X-Gitlab-Event-UUID"), is_token=True)


class GiteaSource(HttpSource):
    """https://docs.gitea.com/usage/webhooks."""

    kind = "gitea"
    title = "Gitea or Forgejo sends by HTTP"
    dialect = Dialect("X-Gitea-Signature", "X-Gitea-Event", ("X-Gitea-Delivery",))


class GenericSource(HttpSource):
    """Signed as the laboratory's own webhooks."""

    kind = "generic"
    title = "Anybody with a secret sends by HTTP"
    dialect = Dialect(
        "X-Ringroad-Lab-Signature-256", "X-Ringroad-Lab-Event", ("X-Ringroad-Lab-Delivery", "Idempotency-Key"), prefix="sha256="
    )
