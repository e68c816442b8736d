"""Sends mail by SMTP (RFC 5321)."""

from __future__ import annotations

import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ringroad_lab.errors import ScenarioError
from ringroad_lab.notification.interface import Notifier, Sender, TemporaryError, UnsentError
from ringroad_lab.notification.message import Notice
from ringroad_lab.secret import secret

_SILENCE_S = 10.0
_Address = Annotated[str, Field(pattern=r"^[^\s<>,;\"]+@[^\s<>,;\"]+$")]


class Mail(Notifier):
    """Sends mail through a mail server."""

    title = "Sends mail"

    server: Annotated[str, Field(min_length=1)]
    port: Annotated[int, Field(ge=1, le=65535)] = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: str | None = None
    password_file: Path | None = None
    password_env: str | None = None
    sender: _Address
    to: Annotated[tuple[_Address, ...], Field(min_length=1)]
    ca_file: Path | None = None
    """CA certificates for the server's certificate; default: the system's."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        passwords = sum(each is not None for each in (self.password_file, self.password_env))
        if passwords > 1 or bool(self.user) is not (passwords == 1):
            raise ValueError("set user with one of password_file and password_env, or none of the three")
        if self.user and self.security == "none":
            raise ValueError("a password must not be sent unencrypted: set security to starttls or tls")
        return self

    def make_sender(self) -> Sender:
        """Read the password.

        Raises:
            ScenarioError: the password is missing, or the CA file cannot be read.
        """
        return _MailSender(self)


class _MailSender(Sender):
    def __init__(self, mail: Mail) -> None:
        self._mail = mail
        self.address = f"mail {mail.server}:{mail.port}"
        self._password = secret("the mail server's password", mail.password_file, mail.password_env)
        try:
            self._tls = ssl.create_default_context(cafile=mail.ca_file)
        except OSError as error:
            raise ScenarioError(f"{mail.ca_file}: cannot read certificates: {error}") from error

    def deliver(self, notice: Notice, delivery: str, within_s: float) -> None:
        mail = self._mail
        message = EmailMessage()
        message["Subject"] = notice.subject
        message["From"] = mail.sender
        message["To"] = ", ".join(mail.to)
        message["Date"] = formatdate(notice.happened_at)
        # The same for all tries, so that mail programs hide duplicates.
        message["Message-ID"] = f"<{delivery}@{mail.sender.rpartition('@')[2]}>"
        message["Auto-Submitted"] = "auto-generated"
        link = mail.link(notice)
        message.set_content(notice.text + (f"{link}\n" if link else ""))
        try:
            with self._connect(min(_SILENCE_S, within_s)) as server:
                if mail.security == "starttls":
                    server.starttls(context=self._tls)
                if mail.user is not None and self._password is not None:
                    server.login(mail.user, self._password)
                refused = server.send_message(message)
        except smtplib.SMTPAuthenticationError as error:
            raise UnsentError("the server rejects user and password") from error
        except smtplib.SMTPNotSupportedError as error:
            raise UnsentError(f"the server does not support security = {mail.security!r} or the login") from error
        except smtplib.SMTPRecipientsRefused as error:
            raise _by_code(min(code for code, _ in error.recipients.values()), "the recipients") from error
        except smtplib.SMTPResponseException as error:
            raise _by_code(error.smtp_code, "the mail") from error
        except ssl.SSLError as error:
            raise UnsentError("the server's certificate is invalid, or the server does not use TLS") from error
        except (smtplib.SMTPException, OSError) as error:
            raise TemporaryError("the server cannot be reached, or does not answer in time") from error
        if refused:
            raise UnsentError(f"the server rejects {', '.join(refused)}")

    def _connect(self, timeout_s: float) -> smtplib.SMTP:
        mail = self._mail
        if mail.security == "tls":
            return smtplib.SMTP_SSL(mail.server, mail.port, timeout=timeout_s, context=self._tls)
        return smtplib.SMTP(mail.server, mail.port, timeout=timeout_s)


def _by_code(code: int, what: str) -> UnsentError:
    """Return the error for a reply code. RFC 5321 section 4.2.1: 400 to 499 are temporary, from 500 on permanent."""
    text = f"the server rejects {what} with reply {code}"
    return TemporaryError(text) if 400 <= code < 500 else UnsentError(text)
