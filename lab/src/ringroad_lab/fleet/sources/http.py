"""Build systems that send by HTTP: how each signs its messages, and names their kind and delivery."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from ringroad_lab.fleet.settings import HttpSource


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


DIALECTS: Mapping[str, Dialect] = {
    # https://docs.github.com/en/webhooks/webhook-events-and-payloads
    "github": Dialect("X-Hub-Signature-256", "X-GitHub-Event", ("X-GitHub-Delivery",), prefix="sha256="),
    # https://docs.gitlab.com/user/project/integrations/webhooks/
    "gitlab": Dialect("X-Gitlab-Token", "X-Gitlab-Event", ("Idempotency-Key", "X-Gitlab-Event-UUID"), is_token=True),
    # https://docs.gitea.com/usage/webhooks
    "gitea": Dialect("X-Gitea-Signature", "X-Gitea-Event", ("X-Gitea-Delivery",)),
    # As the laboratory's own webhooks.
    "generic": Dialect(
        "X-Ringroad-Lab-Signature-256", "X-Ringroad-Lab-Event", ("X-Ringroad-Lab-Delivery", "Idempotency-Key"), prefix="sha256="
    ),
}


@dataclass(frozen=True)
class Hook:
    """A source that sends by HTTP, with its secret."""

    dialect: Dialect
    secret: bytes = field(repr=False)

    @classmethod
    def of(cls, name: str, source: HttpSource) -> Self:
        """Make one of its settings.

        Raises:
            ScenarioError: its secret is not there.
        """
        return cls(DIALECTS[source.kind], source.secret(name).encode())

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
