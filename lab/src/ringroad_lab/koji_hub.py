"""A client of a Koji hub by XML-RPC: queries tagged builds, and the data of a build. No call needs a login."""

from __future__ import annotations

import time
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
from ringroad_lab.safe_xml import parse_xml

MAX_ANSWER_BYTES = 16 << 20
_HEADERS = {"Content-Type": "text/xml", "User-Agent": f"ringroad-lab/{__version__}", **IDENTITY}


class HubError(LabError):
    """The hub cannot be reached, or its answer is invalid."""


class _TooLongError(HubError):
    """An answer exceeds the size limit."""


@dataclass(frozen=True)
class HubEvent:
    """A change of the hub's data; event numbers grow."""

    id: int
    at: float
    """Seconds since 1970, by the hub's clock."""


class KojiHub:
    """A client of one hub; every method raises HubError if the hub does not answer."""

    def __init__(self, url: str, ca_file: Path | None = None, answer_s: float = 30.0, max_answer_bytes: int = MAX_ANSWER_BYTES) -> None:
        """Take the hub's URL, a file of CA certificates if the system's do not suffice, and how long to wait for an answer.

        Raises:
            ScenarioError: the URL is not an HTTP URL, or the file does not exist.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ScenarioError(f"'{url}' is not a hub URL: use https://HOST/kojihub")
        self.name = f"hub {parts.hostname}"
        self._url = url
        self._answer_s = answer_s
        self._max_answer_bytes = max_answer_bytes
        self._session = requests.Session()
        if ca_file is not None:
            if not ca_file.is_file():
                raise ScenarioError(f"{ca_file}: certificate file not found")
            self._session.verify = str(ca_file)

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def last_event(self, before: float | None = None) -> HubEvent | None:
        """Return the last event, or the last one before a time; None if there is none."""
        answer = self._call("getLastEvent", *([] if before is None else [_named(before=before)]))
        if answer is None:
            return None
        number, at = (answer.get("id"), answer.get("ts")) if isinstance(answer, dict) else (None, None)
        if not isinstance(number, int) or not 0 <= number < 2**62 or not isinstance(at, int | float):
            raise self._invalid_answer("getLastEvent")
        return HubEvent(number, float(at))

    def tagged(self, tag: str, after: int, upto: int) -> Iterator[dict[str, Any]]:
        """Yield the builds that were tagged by the events after one event, up to another, in the order of events.

        Each has the number `create_event`; its other fields are unchecked. If the answer is too long, the range is queried in parts.
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
            raise self._invalid_answer("queryHistory")
        # The answer also has the builds that were untagged by these events.
        yield from sorted((row for row in rows if after < row["create_event"] <= upto), key=lambda row: row["create_event"])

    def build(self, build_id: object) -> dict[str, Any]:
        """Return the hub's data of a build; empty if the build is gone."""
        answer = self._call("getBuild", build_id)
        if answer is not None and not isinstance(answer, dict):
            raise self._invalid_answer("getBuild")
        return answer or {}

    def _call(self, method: str, *arguments: Any) -> Any:  # noqa: ANN401
        try:
            body = self._post(xmlrpc.client.dumps(arguments, method, allow_none=True).encode())
            parse_xml(body)
            (answer,), _ = xmlrpc.client.loads(body)
        except xmlrpc.client.Fault as error:
            raise HubError(f"{self.name} refuses {method}: {str(error.faultString)[:300]}") from error
        except requests.exceptions.SSLError as error:
            raise HubError(f"{self.name}: its certificate is invalid, or it does not use TLS") from error
        except requests.exceptions.Timeout as error:
            raise HubError(f"{self.name} does not answer in time") from error
        except (requests.exceptions.RequestException, OSError) as error:
            raise HubError(f"{self.name} cannot be reached") from error
        except (xmlrpc.client.Error, ValueError, TypeError, LookupError, RecursionError) as error:
            raise self._invalid_answer(method) from error
        return answer

    def _post(self, body: bytes) -> bytes:
        ends = time.monotonic() + self._answer_s
        with self._session.post(
            self._url, data=body, headers=_HEADERS, timeout=self._answer_s, allow_redirects=False, stream=True
        ) as answer:
            if answer.status_code != 200:
                raise HubError(f"{self.name} answers with status {answer.status_code}")
            try:
                return read_answer(answer, within_s=ends - time.monotonic(), most_bytes=self._max_answer_bytes)
            except AnswerTooLongError as error:
                raise _TooLongError(f"{self.name}: {error}") from error

    def _invalid_answer(self, method: str) -> HubError:
        return HubError(f"{self.name} returned an invalid answer to {method}")


def _named(**arguments: object) -> dict[str, object]:
    """Return named arguments in Koji's form; XML-RPC has only positional arguments."""
    return {**arguments, "__starstar": True}
