"""Build systems that send messages by HTTP: how each signs them, and identifies their kind and delivery."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from pydantic import model_validator

from ringroad_lab.fleet.sources.interface import Hook, Source
from ringroad_lab.secret import secret
from ringroad_lab.text_types import Word


@dataclass(frozen=True)
class Dialect:
    """The headers of a kind of build system."""

    secret: str
    """Header with the signature, or with the secret itself."""
    event: str
    deliveries: tuple[str, ...]
    """The first of these headers that is present identifies the delivery; a repeated message has the same identifier."""
    prefix: str = ""
    """Prefix of the signature."""
    is_token: bool = False
    """Whether the header contains the secret itself."""


@dataclass(frozen=True)
class HttpHook(Hook):
    """Verifies and identifies the messages of an HTTP source, by its secret."""

    dialect: Dialect
    secret: bytes = field(repr=False)

    def is_signed(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Return whether a message is from the source. The check takes constant time."""
        received = headers.get(self.dialect.secret, "").encode("utf-8", "surrogateescape")
        if self.dialect.is_token:
            return hmac.compare_digest(hashlib.sha256(received).digest(), hashlib.sha256(self.secret).digest())
        expected = self.dialect.prefix + hmac.new(self.secret, body, hashlib.sha256).hexdigest()
        return hmac.compare_digest(received, expected.encode())

    def event(self, headers: Mapping[str, str]) -> str:
        """Return the source's name for the kind of message; empty if there is none."""
        return headers.get(self.dialect.event, "")

    def delivery(self, headers: Mapping[str, str]) -> str:
        """Return the source's identifier of the message; empty if there is none."""
        return next((headers[name] for name in self.dialect.deliveries if headers.get(name)), "")


class HttpSource(Source):
    """A build system that sends its messages to `/hooks/NAME` of `ringroad-lab serve`."""

    dialect: ClassVar[Dialect]

    secret_file: Path | None = None
    secret_env: Word | None = None
    """Place of the secret that authenticates its messages."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.secret_file is None) is (self.secret_env is None):
            raise ValueError("give one of secret_file and secret_env")
        return self

    def hook(self, name: str) -> Hook:
        """Return the hook that takes its messages.

        Raises:
            ScenarioError: the secret is missing.
        """
        return HttpHook(self.dialect, (secret(f"source '{name}'", self.secret_file, self.secret_env) or "").encode())


class GithubSource(HttpSource):
    """https://docs.github.com/en/webhooks/webhook-events-and-payloads."""

    title = "Webhooks of GitHub"
    dialect = Dialect("X-Hub-Signature-256", "X-GitHub-Event", ("X-GitHub-Delivery",), prefix="sha256=")


class GitlabSource(HttpSource):
    """https://docs.gitlab.com/user/project/integrations/webhooks/."""

    title = "Webhooks of GitLab"
    dialect = Dialect("X-Gitlab-Token", "X-Gitlab-Event", ("Idempotency-Key", "X-Gitlab-Event-UUID"), is_token=True)


class GiteaSource(HttpSource):
    """https://docs.gitea.com/usage/webhooks."""

    title = "Webhooks of Gitea or Forgejo"
    dialect = Dialect("X-Gitea-Signature", "X-Gitea-Event", ("X-Gitea-Delivery",))


class GenericSource(HttpSource):
    """Signed like the laboratory's own webhooks."""

    title = "Webhooks of any sender that has the secret"
    dialect = Dialect(
        "X-Ringroad-Lab-Signature-256", "X-Ringroad-Lab-Event", ("X-Ringroad-Lab-Delivery", "Idempotency-Key"), prefix="sha256="
    )
