"""Client of a Beaker hub: XML-RPC over HTTP, as in Beaker's documentation, "XML-RPC methods".

A session is a cookie, and can expire. So after any refusal in an older session, the client logs in again and repeats the call once.
"""

from __future__ import annotations

import time
import xmlrpc.client
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, cast
from urllib.parse import urlsplit

import requests

from ringroad_lab import __version__
from ringroad_lab.errors import ScenarioError
from ringroad_lab.fleet.engine.beaker.job_xml import name_mark
from ringroad_lab.fleet.engine.beaker.settings import BeakerSettings
from ringroad_lab.fleet.engine.interface import EngineError
from ringroad_lab.http_answer import IDENTITY, AnswerTooLongError, pieces, read_answer
from ringroad_lab.safe_xml import parse_xml
from ringroad_lab.secret import secret

_MAX_ANSWER_BYTES = 16 << 20
_MAX_FAULT_CHARACTERS = 500
_HEADERS = {"Content-Type": "text/xml", "User-Agent": f"ringroad-lab/{__version__}", **IDENTITY}


class HubRefusedError(EngineError):
    """The hub refused the call."""


class BeakerHub:
    """Calls a hub as one user."""

    def __init__(self, settings: BeakerSettings) -> None:
        """Take the settings, and read the password.

        Raises:
            ScenarioError: the settings name no hub, or the password is missing.
        """
        if not settings.hub:
            raise ScenarioError("[engine.beaker] of fleet.toml names no hub: add hub, user, and password_file or password_env")
        self._settings = settings
        self._password = secret("the password for Beaker", settings.password_file, settings.password_env) or ""
        self._session: requests.Session | None = None
        self._silent_until = float("-inf")

    def call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401
        """Call a method, logged in.

        Raises:
            HubRefusedError: the hub refused the call, even in a new session.
            EngineError: the hub cannot be reached, does not answer in time, or does not answer with valid XML-RPC.
        """
        if time.monotonic() < self._silent_until:
            # A caller with twenty jobs should not wait twenty times.
            raise EngineError(f"{self._settings.hub} did not answer; calls are suspended for {self._settings.look_every_s:g} s")
        try:
            return self._call_logged_in(method, arguments)
        except HubRefusedError:
            raise
        except EngineError:
            self._silent_until = time.monotonic() + self._settings.look_every_s
            raise

    def _call_logged_in(self, method: str, arguments: tuple[object, ...]) -> Any:  # noqa: ANN401
        is_old = self._session is not None
        if self._session is None:
            self._log_in()
        try:
            return self._call(method, arguments)
        except HubRefusedError:
            self._session = None
            if not is_old:
                raise
        self._log_in()
        return self._call(method, arguments)

    def upload_job(self, name: str, xml: str) -> str:
        """Upload a job, and return its id `J:12`.

        The answer can be lost although the hub accepted the job, so then the job is searched for by its name.

        Raises:
            EngineError: the hub refused the job, or cannot be reached.
        """
        try:
            return _job_id(self.call("jobs.upload", xml))
        except HubRefusedError:
            raise
        except EngineError:
            # One more call, although the hub did not answer this one.
            self._silent_until = float("-inf")
            with suppress(EngineError):
                if (found := self.find_job(name)) is not None:
                    return found
            raise

    def find_job(self, name: str) -> str | None:
        """Return the id of the user's newest job with this name, including an ended job.

        Raises:
            EngineError: the hub cannot be queried now.
        """
        found = self.jobs({"whiteboard": name_mark(name), "owner": self._settings.user, "limit": 1})
        return found[0] if found else None

    def jobs(self, criteria: Mapping[str, Any]) -> list[str]:
        """Return the ids of the matching jobs, newest first.

        Raises:
            EngineError: the hub cannot be queried now.
        """
        found = self.call("jobs.filter", dict(criteria))
        if not isinstance(found, list):
            raise EngineError(f"{self._settings.hub} did not return a list for jobs.filter")
        return [_job_id(each) for each in found]

    def fetch(self, url: str, most_bytes: int) -> bytes:
        """Return the end of a file at a URL from the hub, at most `most_bytes`.

        Raises:
            EngineError: the file is not available.
        """
        if urlsplit(url).scheme not in ("http", "https"):
            raise EngineError(f"the URL of a log from Beaker is not HTTP: {url[:200]}")
        # Logs are on other servers, which must not get our session cookie.
        with self._answering(url), self._new_session().get(url, timeout=self._settings.answer_within_s, stream=True) as answer:
            answer.raise_for_status()
            kept = b""
            for piece in pieces(answer, within_s=self._settings.answer_within_s):
                kept = (kept + piece)[-most_bytes:]
            return kept

    def _log_in(self) -> None:
        self._session = self._new_session()
        try:
            self._call("auth.login_password", (self._settings.user, self._password))
        except EngineError as error:
            self._session = None
            if isinstance(error, HubRefusedError):
                raise HubRefusedError(f"{self._settings.hub} rejects the login of {self._settings.user}: {error}") from error
            raise

    def _new_session(self) -> requests.Session:
        session = requests.Session()
        session.headers.update(_HEADERS)
        # Ignore ~/.netrc and proxy variables: the hub is in the laboratory's own network.
        session.trust_env = False
        session.verify = str(self._settings.ca_file) if self._settings.ca_file else True
        return session

    def _call(self, method: str, arguments: tuple[object, ...]) -> Any:  # noqa: ANN401
        assert self._session is not None
        hub = self._settings.hub
        try:
            body = xmlrpc.client.dumps(cast(Any, arguments), method, allow_none=True).encode()
        except (TypeError, OverflowError) as error:
            raise EngineError(f"{hub}: the arguments of {method} cannot be encoded: {error}") from error
        with self._answering(hub):
            # The path selects XML-RPC, as in Beaker's own client.
            posted = self._session.post(
                f"{hub}/client/", data=body, timeout=self._settings.answer_within_s, allow_redirects=False, stream=True
            )
            with posted as answer:
                if answer.status_code in (401, 403):
                    raise HubRefusedError(f"{hub} refuses {method}: status {answer.status_code}")
                if answer.status_code != 200:
                    raise EngineError(f"{hub} answers {method} with status {answer.status_code}")
                content = read_answer(answer, within_s=self._settings.answer_within_s, most_bytes=_MAX_ANSWER_BYTES)
        try:
            parse_xml(content)
            (result,), _ = xmlrpc.client.loads(content)
        except xmlrpc.client.Fault as error:
            raise HubRefusedError(f"{hub} refuses {method}: {error.faultString[:_MAX_FAULT_CHARACTERS]}") from error
        except Exception as error:
            # An invalid answer can raise any exception in the library.
            raise EngineError(f"{hub} answers {method} with invalid XML-RPC: {str(error)[:_MAX_FAULT_CHARACTERS]}") from error
        return result

    @contextmanager
    def _answering(self, url: str) -> Iterator[None]:
        try:
            yield
        except AnswerTooLongError as error:
            raise EngineError(f"{url}: {error}") from error
        except requests.exceptions.SSLError as error:
            raise EngineError(f"{url}: invalid certificate: {error}") from error
        except requests.exceptions.Timeout as error:
            raise EngineError(f"{url} does not answer within {self._settings.answer_within_s:g} s") from error
        except requests.exceptions.RequestException as error:
            raise EngineError(f"{url} cannot be reached: {error}") from error


def _job_id(value: object) -> str:
    """Check a job id, which becomes part of a file name."""
    kind, _, number = str(value).partition(":")
    if kind != "J" or not number.isdecimal():
        raise EngineError(f"Beaker returned an invalid job id: {str(value)[:100]!r}")
    return f"J:{number}"
