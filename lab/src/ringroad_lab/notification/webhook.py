"""JSON by HTTP POST, signed with HMAC-SHA256 (RFC 2104) of its body."""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from urllib.parse import urlsplit

import requests

from ringroad_lab import __version__
from ringroad_lab.notification.message import Notice
from ringroad_lab.notification.settings import Webhook, secret, webhook_url
from ringroad_lab.notification.unsent import TemporaryError, UnsentError

SIGNATURE_HEADER = "X-Ringroad-Lab-Signature-256"
DELIVERY_HEADER = "X-Ringroad-Lab-Delivery"
# Of a try; a server that is away should not take the time of all of them.
_TRY_S = 10.0
_TRY_LATER = frozenset({408, 425, 429})


class WebhookSender:
    """Sends to one server."""

    def __init__(self, webhook: Webhook) -> None:
        """Take the settings, and read URL and secret.

        Raises:
            ScenarioError: they are not there.
        """
        self.target = webhook
        self._url = webhook_url(webhook)
        self._secret = secret("the webhook's secret", webhook.secret_file, webhook.secret_env)
        # The same for all tries: a server that got it twice can tell.
        self._delivery = str(uuid.uuid4())
        self._body = b""

    @property
    def name(self) -> str:
        """The server: path, query and user of the URL may be secret."""
        parts = urlsplit(self._url)
        return f"webhook {parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"

    def send(self, notice: Notice, within_s: float) -> None:
        """See [`Sender.send`]."""
        self._body = self._body or json.dumps(notice.as_json()).encode()
        headers = {"Content-Type": "application/json", "User-Agent": f"ringroad-lab/{__version__}", DELIVERY_HEADER: self._delivery}
        if self._secret is not None:
            headers[SIGNATURE_HEADER] = f"sha256={hmac.new(self._secret.encode(), self._body, hashlib.sha256).hexdigest()}"
        try:
            with requests.post(
                self._url,
                data=self._body,
                headers=headers,
                timeout=min(_TRY_S, within_s),
                allow_redirects=False,
                verify=str(self.target.ca_file) if self.target.ca_file else True,
                stream=True,
            ) as answer:
                status, asked = answer.status_code, answer.headers.get("Retry-After", "")
        except requests.exceptions.SSLError as error:
            raise UnsentError("the server's certificate is not right, or it speaks no TLS") from error
        except requests.exceptions.Timeout as error:
            raise TemporaryError("the server does not answer in time") from error
        except requests.exceptions.ConnectionError as error:
            raise TemporaryError("the server cannot be reached") from error
        except (requests.exceptions.RequestException, OSError, ValueError) as error:
            # The text of these may hold the URL.
            raise UnsentError(f"it could not be sent ({type(error).__name__})") from error
        if status >= 500 or status in _TRY_LATER:
            raise TemporaryError(f"the server answers with status {status}", float(asked) if asked.isdecimal() and len(asked) < 6 else 0.0)
        if not 200 <= status < 300:
            raise UnsentError(f"the server answers with status {status}")
