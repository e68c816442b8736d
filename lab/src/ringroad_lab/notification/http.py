"""HTTP POST, as all who are told by it need it."""

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

# Of a silence; a server that is away should not take the time of all tries.
_SILENCE_S = 10.0
_TRY_LATER = frozenset({408, 425, 429})
_MAX_ANSWER_BYTES = 4096


@dataclass(frozen=True)
class Answer:
    """What a server said that refuses, or took it."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    """Its beginning; empty where it was taken."""

    @property
    def is_taken(self) -> bool:
        """Whether it was taken."""
        return 200 <= self.status < 300

    @property
    def asked_wait_s(self) -> float:
        """How long the server asks to wait."""
        asked = self.headers.get("Retry-After", "")
        return float(asked) if asked.isdecimal() and asked.isascii() and len(asked) < 6 else 0.0


def post(url: str, body: bytes, headers: Mapping[str, str], *, within_s: float, ca_file: Path | None) -> Answer:
    """Send; redirects are not followed.

    Raises:
        TemporaryError: the server cannot be reached, or asks for another try.
        UnsentError: it cannot be sent at all.
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
            said = b""
            if not is_taken:
                # For people: the status alone decides.
                with suppress(requests.exceptions.RequestException):
                    for piece in pieces(answered, within_s=min(_SILENCE_S, within_s)):
                        said = (said + piece)[:_MAX_ANSWER_BYTES]
                        if len(said) == _MAX_ANSWER_BYTES:
                            break
            answer = Answer(answered.status_code, answered.headers, said)
    except requests.exceptions.SSLError as error:
        raise UnsentError("the server's certificate is not right, or it speaks no TLS") from error
    except requests.exceptions.Timeout as error:
        raise TemporaryError("the server does not answer in time") from error
    except requests.exceptions.ConnectionError as error:
        raise TemporaryError("the server cannot be reached") from error
    except (requests.exceptions.RequestException, OSError, ValueError) as error:
        # The text of these may hold the URL.
        raise UnsentError(f"it could not be sent ({type(error).__name__})") from error
    if answer.status >= 500 or answer.status in _TRY_LATER:
        raise TemporaryError(f"the server answers with status {answer.status}", answer.asked_wait_s)
    return answer


def check_url(what: str, url: str) -> None:
    """Check a URL; it may hold a secret, and is not shown.

    Raises:
        ScenarioError: it is none of HTTP.
    """
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_right = False
    if not is_right:
        raise ScenarioError(f"{what} is not one of HTTP: write https://HOST/PATH")


def server_of(url: str) -> str:
    """Return scheme, host and port of a URL: path, query and user may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"
