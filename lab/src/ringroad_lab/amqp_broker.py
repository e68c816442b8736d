"""A broker of AMQP 0-9-1, such as RabbitMQ: its address, the lab's credentials, and a connection with a time limit."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import aio_pika
from aio_pika.abc import AbstractConnection, FieldValue
from aio_pika.exceptions import CONNECTION_EXCEPTIONS, AMQPConnectionError, AuthenticationError, ProbableAuthenticationError
from pydantic import model_validator
from yarl import URL

from ringroad_lab import __version__
from ringroad_lab.errors import LabError, ScenarioError
from ringroad_lab.secret import secret
from ringroad_lab.trial import Frozen

_CLOSE_S = 2.0
# The lab's errors report what these libraries log.
for _library in ("aio_pika", "aiormq"):
    logging.getLogger(_library).addHandler(logging.NullHandler())


class BrokerError(LabError):
    """The broker cannot be reached, refuses something, or hangs."""


class BrokerSettings(Frozen):
    """Address of a broker. The URL often contains a password, so the settings name a file or environment variable with the URL."""

    url_file: Path | None = None
    url_env: str | None = None
    """`amqps://USER:PASSWORD@HOST:PORT/VHOST`, each part URL-encoded."""
    ca_file: Path | None = None
    """CA certificates to verify the broker's certificate; the default is the system's."""
    certificate_file: Path | None = None
    key_file: Path | None = None
    """The lab's client certificate and key, for authentication without a password."""

    @model_validator(mode="after")
    def _check_broker(self) -> Self:
        if (self.url_file is None) is (self.url_env is None):
            raise ValueError("give one of url_file and url_env")
        if (self.certificate_file is None) is not (self.key_file is None):
            raise ValueError("give both certificate_file and key_file, or neither")
        return self


@dataclass(frozen=True)
class Broker:
    """A broker with credentials."""

    url: URL = field(repr=False)
    tls: ssl.SSLContext | None

    @classmethod
    def of(cls, settings: BrokerSettings, what: str) -> Broker:
        """Read the files and variables that the settings name; `what` names the broker's purpose in errors.

        Raises:
            ScenarioError: a file or variable is missing, or the URL is invalid.
        """
        text = secret(f"{what}: the broker's URL", settings.url_file, settings.url_env) or ""
        try:
            url = URL(text)
            is_valid = url.scheme in ("amqp", "amqps") and bool(url.host) and url.port is not None
        except ValueError:
            is_valid = False
        if not is_valid:
            raise ScenarioError(f"{what}: the broker's URL is invalid: write amqps://USER:PASSWORD@HOST/VHOST")
        if url.scheme == "amqp":
            if settings.certificate_file or settings.ca_file:
                raise ScenarioError(f"{what}: certificates need TLS: begin the broker's URL with amqps://")
            return cls(url, None)
        try:
            tls = ssl.create_default_context(cafile=settings.ca_file)
            if settings.certificate_file is not None:
                tls.load_cert_chain(settings.certificate_file, settings.key_file)
        except OSError as error:
            files = ", ".join(str(each) for each in (settings.ca_file, settings.certificate_file, settings.key_file) if each)
            raise ScenarioError(f"{what}: one of {files} cannot be read, or is not a certificate: {error.strerror or error}") from error
        if settings.certificate_file is not None and not url.password and "auth" not in url.query:
            # The SASL mechanism for authentication by certificate.
            url = url.update_query(auth="external")
        return cls(url, tls)

    @property
    def name(self) -> str:
        """Display name, without user and password."""
        return f"broker {self.url.host}:{self.url.port}"

    @asynccontextmanager
    async def connected(self, answer_s: float) -> AsyncIterator[AbstractConnection]:
        """Connect, and disconnect at the end.

        Raises:
            BrokerError: the broker cannot be reached, or an operation on the connection failed.
        """
        connection = None
        try:
            properties: dict[str, FieldValue] = {"product": "ringroad-lab", "version": __version__}
            async with asyncio.timeout(answer_s):
                connection = await aio_pika.connect(self.url, ssl_context=self.tls, client_properties=properties)
            yield connection
        except TimeoutError as error:
            raise BrokerError(f"{self.name} does not answer within {answer_s:g} s") from error
        except (AuthenticationError, ProbableAuthenticationError) as error:
            raise BrokerError(f"{self.name} rejected the login: wrong user, password, certificate or virtual host") from error
        except (AMQPConnectionError, OSError, EOFError) as error:
            raise BrokerError(f"{self.name} cannot be reached, or closed the connection: {_text(error)}") from error
        except CONNECTION_EXCEPTIONS as error:
            raise BrokerError(f"{self.name}: {_text(error)}") from error
        finally:
            if connection is not None:
                with suppress(Exception):
                    async with asyncio.timeout(_CLOSE_S):
                        await connection.close()


def _text(error: Exception) -> str:
    return str(error)[:300] or type(error).__name__
