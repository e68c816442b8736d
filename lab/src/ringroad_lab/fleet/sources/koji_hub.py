"""A Koji hub as a client sees it, by XML-RPC: which builds were tagged, and what a build is. It is asked for nothing that needs a login."""

from __future__ import annotations

import xmlrpc.client
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from ringroad_lab import __version__
from ringroad_lab.errors import LabError, ScenarioError
from ringroad_lab.http_answer import IDENTITY, AnswerTooLongError, read_answer
from ringroad_lab.safe_xml import check_xml

MAX_ANSWER_BYTES = 16 << 20
_HEADERS = {"Content-Type": "text/xml", "User-Agent": f"ringroad-lab/{__version__}", **IDENTITY}


class HubError(LabError):
    """The hub cannot be reached, or does not answer as a hub does."""


class _TooLongError(HubError):
    """An answer is longer than may be."""


@dataclass(frozen=True)
class Event:
    """A change of what the hub holds; the numbers grow."""

    id: int
    at: float
    """Seconds since 1970, by the hub's clock."""


class KojiHub:
    """One; every method raises HubError where it does not answer."""

    def __init__(self, url: str, ca_file: Path | None = None, answer_s: float = 30.0, max_answer_bytes: int = MAX_ANSWER_BYTES) -> None:
        """Take its URL, who signed its certificate if the system does not know that, and how long to wait for an answer.

        Raises:
            ScenarioError: the URL is none of HTTP, or there is no such file.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ScenarioError(f"'{url}' is no URL of a hub: write https://HOST/kojihub")
        self.name = f"hub {parts.hostname}"
        self._url = url
        self._answer_s = answer_s
        self._max_answer_bytes = max_answer_bytes
        self._session = requests.Session()
        if ca_file is not None:
            if not ca_file.is_file():
                raise ScenarioError(f"{ca_file}: there is no such file of certificates")
            self._session.verify = str(ca_file)

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def last_event(self, before: float | None = None) -> Event | None:
        """Return the last event, or the last one before a moment; None where there is none."""
        answer = self._call("getLastEvent", *([] if before is None else [_named(before=before)]))
        if answer is None:
            return None
        number, at = (answer.get("id"), answer.get("ts")) if isinstance(answer, dict) else (None, None)
        if not isinstance(number, int) or not 0 <= number < 2**62 or not isinstance(at, int | float):
            raise self._strange("getLastEvent")
        return Event(number, float(at))

    def tagged(self, tag: str, after: int, upto: int) -> Iterator[dict[str, Any]]:
        """Go through the builds that were given a tag by the events after one, up to another, in their order.

        Each has `create_event`, a number; what else it has is as the hub says. Where the answer is too long, it is asked for in parts.
        """
        try:
            answer = self._call("queryHistory", _named(tables=["tag_listing"], tag=tag, afterEvent=after, beforeEvent=upto + 1))
        except _TooLongError:
            if upto - after < 2:
                raise
            middle = (after + upto) // 2
            yield from self.tagged(tag, after, middle)
            yield from self.tagged(tag, middle, upto)
            return
        rows = answer.get("tag_listing") if isinstance(answer, dict) else None
        if not isinstance(rows, list) or not all(isinstance(row, dict) and isinstance(row.get("create_event"), int) for row in rows):
            raise self._strange("queryHistory")
        # It answers with what was untagged by these events as well.
        yield from sorted((row for row in rows if after < row["create_event"] <= upto), key=lambda row: row["create_event"])

    def build(self, build_id: object) -> dict[str, Any]:
        """Return what the hub says of a build; nothing where it is gone."""
        answer = self._call("getBuild", build_id)
        if answer is not None and not isinstance(answer, dict):
            raise self._strange("getBuild")
        return answer or {}

    def _call(self, method: str, *arguments: Any) -> Any:  # noqa: ANN401
        try:
            said = self._post(xmlrpc.client.dumps(arguments, method, allow_none=True).encode())
            check_xml(said)
            (answer,), _ = xmlrpc.client.loads(said)
        except xmlrpc.client.Fault as error:
            raise HubError(f"{self.name} refuses {method}: {str(error.faultString)[:300]}") from error
        except requests.exceptions.SSLError as error:
            raise HubError(f"{self.name}: its certificate is not right, or it speaks no TLS") from error
        except requests.exceptions.Timeout as error:
            raise HubError(f"{self.name} does not answer in time") from error
        except (requests.exceptions.RequestException, OSError) as error:
            raise HubError(f"{self.name} cannot be reached") from error
        except (xmlrpc.client.Error, ValueError, TypeError, LookupError, RecursionError) as error:
            raise self._strange(method) from error
        return answer

    def _post(self, body: bytes) -> bytes:
        with self._session.post(
            self._url, data=body, headers=_HEADERS, timeout=self._answer_s, allow_redirects=False, stream=True
        ) as answer:
            if answer.status_code != 200:
                raise HubError(f"{self.name} answers with status {answer.status_code}")
            try:
                return read_answer(answer, within_s=self._answer_s, most_bytes=self._max_answer_bytes)
            except AnswerTooLongError as error:
                raise _TooLongError(f"{self.name}: {error}") from error

    def _strange(self, method: str) -> HubError:
        return HubError(f"{self.name} does not answer {method} as a Koji hub does")


def _named(**arguments: object) -> dict[str, object]:
    """Return arguments with names as Koji has them in XML-RPC, which knows none."""
    return {**arguments, "__starstar": True}
