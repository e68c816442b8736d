"""Sends JSON by HTTP POST, signed with HMAC-SHA256 (RFC 2104) of the body."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Self

from pydantic import SecretStr, model_validator

from ringroad_lab.notification.http import check_url, post, server_of
from ringroad_lab.notification.interface import Notifier, Sender, UnsentError
from ringroad_lab.notification.message import Notice
from ringroad_lab.secret import secret

SIGNATURE_HEADER = "X-Ringroad-Lab-Signature-256"
DELIVERY_HEADER = "X-Ringroad-Lab-Delivery"
SECRET_VARIABLE = "RINGROAD_LAB_WEBHOOK_SECRET"
"""Contains the secret of a webhook from the command line."""


class Webhook(Notifier):
    """Sends JSON to an HTTP server by POST."""

    title = "Sends signed JSON to an HTTP server"

    url: SecretStr | None = None
    url_file: Path | None = None
    url_env: str | None = None
    secret_file: Path | None = None
    secret_env: str | None = None
    """The secret for the signature of the body; without it the body is not signed."""
    ca_file: Path | None = None
    """CA certificates for the server's certificate; default: the system's."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if sum(each is not None for each in (self.url, self.url_file, self.url_env)) != 1:
            raise ValueError("give one of url, url_file and url_env")
        if self.secret_file and self.secret_env:
            raise ValueError("give secret_file or secret_env, not both")
        return self

    def make_sender(self) -> Sender:
        """Read URL and secret.

        Raises:
            ScenarioError: URL or secret is missing, or the URL is not an HTTP URL.
        """
        return _WebhookSender(self)


class _WebhookSender(Sender):
    def __init__(self, webhook: Webhook) -> None:
        self._webhook = webhook
        shown = webhook.url.get_secret_value() if webhook.url else None
        self._url = shown if shown is not None else secret("the webhook's URL", webhook.url_file, webhook.url_env) or ""
        check_url("the webhook's URL", self._url)
        self.address = f"webhook {server_of(self._url)}"
        self._secret = secret("the webhook's secret", webhook.secret_file, webhook.secret_env)

    def deliver(self, notice: Notice, delivery: str, within_s: float) -> None:
        body = json.dumps(notice.as_json() | {"url": self._webhook.link(notice)}).encode()
        headers = {DELIVERY_HEADER: delivery}
        if self._secret is not None:
            headers[SIGNATURE_HEADER] = f"sha256={hmac.new(self._secret.encode(), body, hashlib.sha256).hexdigest()}"
        answer = post(self._url, body, headers, within_s=within_s, ca_file=self._webhook.ca_file)
        if not answer.is_taken:
            raise UnsentError(f"the server answers with status {answer.status}")
