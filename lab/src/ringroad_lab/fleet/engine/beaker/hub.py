"""The hub of Beaker, by XML-RPC over HTTP: methods as Beaker's documentation, "XML-RPC methods", has them.

Sessions are cookies. One that ended is begun again: after any refusal in a session that was begun earlier, the hub is asked once more.
"""

from __future__ import annotations

import time
import xmlrpc.client
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import requests

from ringroad_lab import __version__
from ringroad_lab.fleet.engine.beaker.settings import BeakerSettings
from ringroad_lab.fleet.engine.interface import EngineError
from ringroad_lab.http_answer import IDENTITY, AnswerTooLongError, pieces, read_answer
from ringroad_lab.notification.settings import secret
from ringroad_lab.safe_xml import check_xml

_MAX_ANSWER_BYTES = 16 << 20
_MAX_FAULT_CHARACTERS = 500
_HEADERS = {"Content-Type": "text/xml", "User-Agent": f"ringroad-lab/{__version__}", **IDENTITY}


class HubRefusedError(EngineError):
    """The hub answered that it does not do it."""


class Hub:
    """A hub, as one user."""

    def __init__(self, settings: BeakerSettings) -> None:
        """Take the settings, and read the password.

        Raises:
            ScenarioError: it is not there.
        """
        self._settings = settings
        self._password = secret("the password for Beaker", settings.password_file, settings.password_env) or ""
        self._session: requests.Session | None = None
        self._silent_until = float("-inf")

    def call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401
        """Call a method, logged in.

        Raises:
            HubRefusedError: the hub refused it, also in a new session.
            EngineError: the hub cannot be reached, or does not answer in time, or not in XML-RPC.
        """
        if time.monotonic() < self._silent_until:
            # Whoever has twenty jobs should not wait twenty times.
            raise EngineError(f"{self._settings.hub} did not answer, and is left alone for {self._settings.look_every_s:g} s")
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

    def fetch(self, url: str, most_bytes: int) -> bytes:
        """Return the end of a file that the hub named, of which not more than so many bytes are kept.

        Raises:
            EngineError: it cannot be had.
        """
        if urlsplit(url).scheme not in ("http", "https"):
            raise EngineError(f"Beaker names a log that is not to be had by HTTP: {url[:200]}")
        # Logs are on other servers: they get no session of ours.
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
                raise HubRefusedError(f"{self._settings.hub} does not let {self._settings.user} in: {error}") from error
            raise

    def _new_session(self) -> requests.Session:
        session = requests.Session()
        session.headers.update(_HEADERS)
        # No passwords of ~/.netrc, no proxies of the environment: the hub is one of the laboratory's own network.
        session.trust_env = False
        session.verify = str(self._settings.ca_file) if self._settings.ca_file else True
        return session

    def _call(self, method: str, arguments: tuple[object, ...]) -> Any:  # noqa: ANN401
        assert self._session is not None
        hub = self._settings.hub
        try:
            body = xmlrpc.client.dumps(cast(Any, arguments), method, allow_none=True).encode()
        except (TypeError, OverflowError) as error:
            raise EngineError(f"{method} cannot be asked of {hub}: {error}") from error
        with self._answering(hub):
            # As Beaker's own client does: the path tells the hub that XML-RPC is spoken.
            asked = self._session.post(
                f"{hub}/client/", data=body, timeout=self._settings.answer_within_s, allow_redirects=False, stream=True
            )
            with asked as answer:
                if answer.status_code in (401, 403):
                    raise HubRefusedError(f"{hub} refuses {method}: it answers with status {answer.status_code}")
                if answer.status_code != 200:
                    raise EngineError(f"{hub} answers {method} with status {answer.status_code}")
                content = read_answer(answer, within_s=self._settings.answer_within_s, most_bytes=_MAX_ANSWER_BYTES)
        try:
            check_xml(content)
            (told,), _ = xmlrpc.client.loads(content)
        except xmlrpc.client.Fault as error:
            raise HubRefusedError(f"{hub} refuses {method}: {error.faultString[:_MAX_FAULT_CHARACTERS]}") from error
        except Exception as error:
            # Whatever the hub may say instead of XML-RPC, and the library make of it.
            raise EngineError(f"{hub} answers {method} with what is no XML-RPC: {str(error)[:_MAX_FAULT_CHARACTERS]}") from error
        return told

    @contextmanager
    def _answering(self, url: str) -> Iterator[None]:
        try:
            yield
        except AnswerTooLongError as error:
            raise EngineError(f"{url}: {error}") from error
        except requests.exceptions.SSLError as error:
            raise EngineError(f"{url}: its certificate is not right: {error}") from error
        except requests.exceptions.Timeout as error:
            raise EngineError(f"{url} does not answer within {self._settings.answer_within_s:g} s") from error
        except requests.exceptions.RequestException as error:
            raise EngineError(f"{url} cannot be reached: {error}") from error
