"""HTTP POST for all notifiers that use HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import requests

from ringroad_lab import __version__
from ringroad_lab.errors import ScenarioError
from ringroad_lab.http_answer import IDENTITY, pieces
from ringroad_lab.notification.interface import TemporaryError, UnsentError

# Time limit for a silent server, so that one try does not use the time of all tries.
_SILENCE_S = 10.0
_TRY_LATER = frozenset({408, 425, 429})
_MAX_ANSWER_BYTES = 4096


@dataclass(frozen=True)
class Answer:
    """A server's answer: it accepted or rejected a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    """Beginning of the body; empty if the server accepted the request."""

    @property
    def is_taken(self) -> bool:
        """Whether the server accepted the request."""
        return 200 <= self.status < 300

    @property
    def asked_wait_s(self) -> float:
        """Time that the server requests to wait, s."""
        wait = self.headers.get("Retry-After", "")
        return float(wait) if wait.isdecimal() and wait.isascii() and len(wait) < 6 else 0.0


def post(url: str, body: bytes, headers: Mapping[str, str], *, within_s: float, ca_file: Path | None) -> Answer:
    """Send a POST request; redirects are not followed.

    Raises:
        TemporaryError: the server cannot be reached, or requests a retry.
        UnsentError: the request cannot be sent at all.
    """
    try:
        with requests.post(
            url,
            data=body,
            headers={"Content-Type": "application/json", "User-Agent": f"ringroad-lab/{__version__}", **IDENTITY, **headers},
            timeout=min(_SILENCE_S, within_s),
            allow_redirects=False,
            verify=str(ca_file) if ca_file else True,
            stream=True,
        ) as answered:
            is_taken = 200 <= answered.status_code < 300
            received = b""
            if not is_taken:
                # The body is only for users: the status alone decides.
                with suppress(requests.exceptions.RequestException):
                    for piece in pieces(answered, within_s=min(_SILENCE_S, within_s)):
                        received = (received + piece)[:_MAX_ANSWER_BYTES]
                        if len(received) == _MAX_ANSWER_BYTES:
                            break
            answer = Answer(answered.status_code, answered.headers, received)
    except requests.exceptions.SSLError as error:
        raise UnsentError("the server's certificate is invalid, or the server does not use TLS") from error
    except requests.exceptions.Timeout as error:
        raise TemporaryError("the server does not answer in time") from error
    except requests.exceptions.ConnectionError as error:
        raise TemporaryError("the server cannot be reached") from error
    except (requests.exceptions.RequestException, OSError, ValueError) as error:
        # The text of these errors may contain the URL.
        raise UnsentError(f"sending failed ({type(error).__name__})") from error
    if answer.status >= 500 or answer.status in _TRY_LATER:
        raise TemporaryError(f"the server answers with status {answer.status}", answer.asked_wait_s)
    return answer


def check_url(what: str, url: str) -> None:
    """Check a URL. It may contain a secret, so messages do not show it.

    Raises:
        ScenarioError: the URL is not an HTTP URL.
    """
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_right = False
    if not is_right:
        raise ScenarioError(f"{what} is not an HTTP URL: use https://HOST/PATH")


def server_of(url: str) -> str:
    """Return scheme, host and port of a URL: path, query and user may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"
