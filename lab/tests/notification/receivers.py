"""Servers on this machine that receive notifications: HTTP, and SMTP with TLS and passwords."""

from __future__ import annotations

import asyncio
import datetime
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ADDRESS = "127.0.0.1"


@dataclass
class HttpReceiver:
    """Requests to an HTTP server, and its answers: the statuses in order, then always the last one."""

    url: str = ""
    statuses: list[int] = field(default_factory=lambda: [200])
    headers_answered: dict[str, str] = field(default_factory=dict)
    body_answered: bytes = b""
    got: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    is_silent: bool = False
    """Whether the server accepts requests and never answers."""
    holding: threading.Event = field(default_factory=threading.Event)
    """While set, the server answers no request."""


@contextmanager
def http_receiver(receiver: HttpReceiver) -> Iterator[HttpReceiver]:
    """Run an HTTP server on this machine."""
    is_over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.got.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            while receiver.holding.is_set() and not is_over.wait(0.01):
                pass
            if receiver.is_silent:
                is_over.wait(60)
                return
            self.send_response(receiver.statuses.pop(0) if len(receiver.statuses) > 1 else receiver.statuses[0])
            for name, value in {"Content-Length": str(len(receiver.body_answered)), **receiver.headers_answered}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(receiver.body_answered)

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002, ANN401
            pass

    with ThreadingHTTPServer((ADDRESS, 0), Handler) as server:
        server.daemon_threads = True
        receiver.url = f"http://{ADDRESS}:{server.server_address[1]}/hook?token=in-the-url"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield receiver
        finally:
            is_over.set()
            server.shutdown()
            thread.join()


class FreePortController(Controller):
    """A server on a free port: the original controller would connect to port 0."""

    def _trigger_server(self) -> None:
        assert isinstance(self.server, asyncio.Server)
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()  # type: ignore[no-untyped-call]


@dataclass
class MailReceiver:
    """Messages to a mail server, and its replies to messages."""

    port: int = 0
    replies: list[str] = field(default_factory=lambda: ["250 taken"])
    got: list[Envelope] = field(default_factory=list)
    logins: list[tuple[bytes, bytes]] = field(default_factory=list)

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        """Receive a message."""
        self.got.append(envelope)
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@contextmanager
def mail_receiver(receiver: MailReceiver, certificate: Path, *, password: str | None = None) -> Iterator[MailReceiver]:
    """Run an SMTP server with STARTTLS on this machine; with a password, it requires a login."""

    def authenticate(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: object) -> AuthResult:
        assert isinstance(data, LoginPassword)
        receiver.logins.append((data.login, data.password))
        return AuthResult(success=data.password.decode() == password, handled=False)

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    controller = FreePortController(
        receiver,
        hostname=ADDRESS,
        port=0,
        tls_context=tls,
        require_starttls=True,
        auth_required=password is not None,
        authenticator=authenticate,
    )
    controller.start()
    try:
        receiver.port = controller.port
        yield receiver
    finally:
        controller.stop()


def write_certificate(path: Path) -> Path:
    """Write a self-signed certificate for 127.0.0.1, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, ADDRESS)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(ADDRESS))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path
