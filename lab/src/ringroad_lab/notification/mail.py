"""A mail, by SMTP (RFC 5321)."""

from __future__ import annotations

import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate, make_msgid

from ringroad_lab.errors import ScenarioError
from ringroad_lab.notification.message import Notice
from ringroad_lab.notification.settings import Mail, secret
from ringroad_lab.notification.unsent import TemporaryError, UnsentError

_TRY_S = 10.0


class MailSender:
    """Sends by one server."""

    def __init__(self, mail: Mail) -> None:
        """Take the settings, and read the password.

        Raises:
            ScenarioError: it is not there, or the file of authorities cannot be read.
        """
        self.target: Mail = mail
        self._password = secret("the mail server's password", mail.password_file, mail.password_env)
        self._id = make_msgid("ringroad-lab", mail.sender.rpartition("@")[2])
        try:
            self._tls = ssl.create_default_context(cafile=mail.ca_file)
        except OSError as error:
            raise ScenarioError(f"{mail.ca_file}: no certificates can be read from it: {error}") from error

    @property
    def name(self) -> str:
        """The server."""
        return f"mail server {self.target.server}:{self.target.port}"

    def send(self, notice: Notice, within_s: float) -> None:
        """See [`Sender.send`]."""
        mail = self.target
        message = EmailMessage()
        message["Subject"] = notice.subject
        message["From"] = mail.sender
        message["To"] = ", ".join(mail.to)
        message["Date"] = formatdate()
        # The same for all tries: mail programs show one that came twice once.
        message["Message-ID"] = self._id
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(notice.text)
        try:
            with self._connect(min(_TRY_S, within_s)) as server:
                if mail.security == "starttls":
                    server.starttls(context=self._tls)
                if mail.user is not None and self._password is not None:
                    server.login(mail.user, self._password)
                refused = server.send_message(message)
        except smtplib.SMTPAuthenticationError as error:
            raise UnsentError("the server refuses user and password") from error
        except smtplib.SMTPNotSupportedError as error:
            raise UnsentError(f"the server cannot do what security = {mail.security!r} or the login needs") from error
        except smtplib.SMTPRecipientsRefused as error:
            raise _by_code(min(code for code, _ in error.recipients.values()), "the recipients") from error
        except smtplib.SMTPResponseException as error:
            raise _by_code(error.smtp_code, "the mail") from error
        except ssl.SSLError as error:
            raise UnsentError("the server's certificate is not right, or it speaks no TLS") from error
        except (smtplib.SMTPException, OSError) as error:
            raise TemporaryError("the server cannot be reached, or does not answer in time") from error
        if refused:
            raise UnsentError(f"the server refuses {', '.join(refused)}")

    def _connect(self, timeout_s: float) -> smtplib.SMTP:
        mail = self.target
        if mail.security == "tls":
            return smtplib.SMTP_SSL(mail.server, mail.port, timeout=timeout_s, context=self._tls)
        return smtplib.SMTP(mail.server, mail.port, timeout=timeout_s)


def _by_code(code: int, what: str) -> UnsentError:
    """RFC 5321 section 4.2.1: replies from 400 to 499 are about now, those from 500 on for ever."""
    said = f"the server refuses {what} with reply {code}"
    return TemporaryError(said) if 400 <= code < 500 else UnsentError(said)
