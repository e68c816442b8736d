"""Who is told how a run ended: settings in TOML. They hold no secrets, but name the files or environment variables that do."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from ringroad_lab.errors import ScenarioError, value_problems

FILE_NAME = "notifications.toml"
WEBHOOK_SECRET_VARIABLE = "RINGROAD_LAB_WEBHOOK_SECRET"
_MAX_BYTES = 1 << 20


class Occasion(StrEnum):
    """When to tell."""

    REGRESSION = "regression"
    """The comparison shows one."""
    FAILURE = "failure"
    """The run failed, or a measurement is invalid."""
    ALWAYS = "always"


class Target(BaseModel):
    """What all who are told have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    on: Annotated[tuple[Occasion, ...], Field(min_length=1)] = (Occasion.REGRESSION, Occasion.FAILURE)
    within_s: Annotated[float, Field(gt=0, le=600)] = 30.0
    """After that the telling is given up, retries and all."""
    ca_file: Path | None = None
    """Certificates of the authorities that the server's is checked with; the system's unless given."""


class Webhook(Target):
    """An HTTP server that gets JSON by POST."""

    url: SecretStr | None = None
    url_file: Path | None = None
    url_env: str | None = None
    secret_file: Path | None = None
    secret_env: str | None = None
    """The secret that the body is signed with; without one it is not signed."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if sum(each is not None for each in (self.url, self.url_file, self.url_env)) != 1:
            raise ValueError("give one of url, url_file and url_env")
        if self.secret_file and self.secret_env:
            raise ValueError("give secret_file or secret_env, not both")
        return self


class Mail(Target):
    """A mail server that takes a message."""

    server: Annotated[str, Field(min_length=1)]
    port: Annotated[int, Field(ge=1, le=65535)] = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: str | None = None
    password_file: Path | None = None
    password_env: str | None = None
    sender: Annotated[str, Field(pattern=r"^[^\s<>,;\"]+@[^\s<>,;\"]+$")]
    to: Annotated[tuple[Annotated[str, Field(pattern=r"^[^\s<>,;\"]+@[^\s<>,;\"]+$")], ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        passwords = sum(each is not None for each in (self.password_file, self.password_env))
        if passwords > 1 or bool(self.user) is not (passwords == 1):
            raise ValueError("give user with one of password_file and password_env, or none of them")
        if self.user and self.security == "none":
            raise ValueError("a password does not go over the network readable: set security to starttls or tls")
        return self


class Notifications(BaseModel):
    """A file of settings, whole."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    webhook: tuple[Webhook, ...] = ()
    mail: tuple[Mail, ...] = ()


def read_notifications(path: Path) -> Notifications:
    """Read a file.

    Raises:
        ScenarioError: it cannot be read, or is not right.
    """
    try:
        with path.open("rb") as file:
            return Notifications.model_validate(tomllib.loads(file.read(_MAX_BYTES).decode()))
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        raise ScenarioError(f"{path}: {'; '.join(value_problems(error))}") from error
    except ValueError as error:
        raise ScenarioError(f"{path}: it is no TOML: {error}") from error


def secret(what: str, file: Path | None, variable: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return a secret from a file's first line, or from the environment; None where neither is named.

    Raises:
        ScenarioError: it is not there.
    """
    if file is not None:
        try:
            text = file.expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
            raise ScenarioError(f"{what}: {file} cannot be read: {why}") from error
        found = text.splitlines()[0].strip() if text.strip() else ""
        where = str(file)
    elif variable is not None:
        found, where = environment.get(variable, ""), f"${variable}"
    else:
        return None
    if not found:
        raise ScenarioError(f"{what}: {where} is empty")
    return found


def webhook_url(webhook: Webhook) -> str:
    """Return the URL; it may hold a secret itself.

    Raises:
        ScenarioError: it is not there, or no URL of HTTP.
    """
    url = webhook.url.get_secret_value() if webhook.url else secret("the webhook's URL", webhook.url_file, webhook.url_env) or ""
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_right = False
    if not is_right:
        raise ScenarioError("the webhook's URL is not one of HTTP: write https://HOST/PATH")
    return url
