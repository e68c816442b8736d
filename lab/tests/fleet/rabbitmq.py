"""A RabbitMQ server for the tests, without systemd: all its ports are on loopback, and all its files are in one folder.

Import the fixture `rabbitmq`. All tests of a process share the server, which starts with the first test that needs it.
"""

from __future__ import annotations

import asyncio
import datetime
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar

import aio_pika
import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from free_ports import free_ports
from ringroad_lab.deadline import wait_until

HOST = "127.0.0.1"
T = TypeVar("T")
_START_S = 300.0
# RabbitMQ 3.10 loses the leader of a quorum queue for a minute if it is killed within a second of the queue's declaration.
_QUEUE_SETTLED_S = 8.0


class RabbitMq:
    """The server. Its user `guest` has the password `guest`, and needs no password with the certificate."""

    def __init__(self, folder: Path) -> None:
        """Prepare the server's files in a folder."""
        self.folder = folder
        self.authority, self.certificate = _write_certificates(folder)
        self.port, self.tls_port, dist_port, epmd_port = free_ports(4)
        (homes,) = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*"))[-1:]
        self._program = homes / "sbin" / "rabbitmq-server"
        (folder / ".erlang.cookie").write_text(secrets.token_hex(16))
        (folder / ".erlang.cookie").chmod(0o400)
        (folder / "enabled_plugins").write_text("[rabbitmq_auth_mechanism_ssl].\n")
        settings = {
            "listeners.tcp.1": f"{HOST}:{self.port}",
            "listeners.ssl.1": f"{HOST}:{self.tls_port}",
            "loopback_users.guest": "true",
            "auth_mechanisms.1": "EXTERNAL",
            "auth_mechanisms.2": "PLAIN",
            "ssl_cert_login_from": "common_name",
            "ssl_options.cacertfile": self.authority,
            "ssl_options.certfile": self.certificate,
            "ssl_options.keyfile": self.certificate,
            "ssl_options.verify": "verify_peer",
            "ssl_options.fail_if_no_peer_cert": "false",
        }
        (folder / "rabbitmq.conf").write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
        self._env = {
            "PATH": f"{homes / 'sbin'}:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "HOME": str(folder),
            "RABBITMQ_HOME": str(homes),
            "RABBITMQ_NODENAME": f"ringroad-{epmd_port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(dist_port),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": "/nonexistent",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "ERL_EPMD_PORT": str(epmd_port),
            "ERL_EPMD_ADDRESS": HOST,
            # One scheduler that does not spin; the server does not wait for other nodes.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1 +sbwt none",
        }
        self._server: subprocess.Popen[bytes] | None = None
        self._declared: dict[str, float] = {}

    @property
    def url(self) -> str:
        """The URL of the server, with the password."""
        return f"amqp://guest:guest@{HOST}:{self.port}/%2F"

    @property
    def tls_url(self) -> str:
        """The URL of the server for clients with the certificate."""
        return f"amqps://{HOST}:{self.tls_port}/%2F"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        log = (self.folder / "output").open("ab")
        with log:
            self._server = subprocess.Popen(
                [self._program], env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )
        ends = time.monotonic() + _START_S
        while not self._answers():
            if self._server.poll() is not None or time.monotonic() > ends:
                self.kill()
                pytest.fail(f"RabbitMQ did not start: {(self.folder / 'output').read_text(errors='replace')[-3000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill the server and all its processes, and wait for their end; its queues stay in its folder."""
        mine = self._processes()
        for process in mine:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(mine, timeout=30)
        if self._server is not None:
            self._server.wait(30)
        assert not self._processes()

    def hang(self) -> None:
        """Make the server hang: it keeps its connections and does not answer."""
        for process in self._processes():
            process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Make the server work again."""
        for process in self._processes():
            process.send_signal(signal.SIGCONT)

    def declare(self, queue: str, *topics: str, kind: str = "classic", exchange: str = "amq.topic") -> None:
        """Declare a durable queue for the messages of an exchange; a repetition does nothing."""

        async def act(channel: aio_pika.abc.AbstractChannel) -> None:
            made = await channel.declare_queue(queue, durable=True, arguments={"x-queue-type": "quorum"} if kind == "quorum" else None)
            for topic in topics:
                await made.bind(exchange, topic)

        self._do(act)
        self._declared.setdefault(queue, time.monotonic())

    def await_settled(self, queue: str) -> None:
        """Wait until the server can be killed without losing a queue; the server does not report this state."""
        wait_until(lambda: time.monotonic() > self._declared[queue] + _QUEUE_SETTLED_S, 2 * _QUEUE_SETTLED_S)

    def publish(self, topic: str, *bodies: bytes, message_id: str | None = None, sent_at: str | None = None) -> None:
        """Send messages, and wait until the server has confirmed each."""

        async def act(channel: aio_pika.abc.AbstractChannel) -> None:
            exchange = await channel.get_exchange("amq.topic")
            for body in bodies:
                headers: dict[str, aio_pika.abc.FieldValue] = {"sent-at": sent_at} if sent_at else {}
                mode = aio_pika.DeliveryMode.PERSISTENT
                await exchange.publish(aio_pika.Message(body, message_id=message_id, headers=headers, delivery_mode=mode), topic)

        self._do(act)

    def delete(self, queue: str) -> None:
        """Delete a queue, even if it has consumers."""
        self._do(lambda channel: channel.queue_delete(queue))

    def waiting(self, queue: str) -> int:
        """Return how many messages wait in a queue."""

        async def act(channel: aio_pika.abc.AbstractChannel) -> int:
            return (await channel.declare_queue(queue, passive=True)).declaration_result.message_count or 0

        return self._do(act)

    def consumers(self, queue: str) -> int:
        """Return how many consumers a queue has."""

        async def act(channel: aio_pika.abc.AbstractChannel) -> int:
            return (await channel.declare_queue(queue, passive=True)).declaration_result.consumer_count or 0

        return self._do(act)

    def take(self, queue: str) -> aio_pika.abc.AbstractIncomingMessage | None:
        """Take a message from a queue; None if there is none."""

        async def act(channel: aio_pika.abc.AbstractChannel) -> aio_pika.abc.AbstractIncomingMessage | None:
            return await (await channel.get_queue(queue)).get(no_ack=True, fail=False)

        return self._do(act)

    def _do(self, act: Callable[[aio_pika.abc.AbstractChannel], Awaitable[T]]) -> T:
        async def work() -> T:
            async with await aio_pika.connect(self.url) as connection, asyncio.timeout(60), connection.channel() as channel:
                return await act(channel)

        return asyncio.run(work())

    def _answers(self) -> bool:
        """Whether it answers the header of the protocol (AMQP 0-9-1, section 4.2.2) with a method."""
        try:
            with socket.create_connection((HOST, self.port), 5) as connection:
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return connection.recv(1) == b"\x01"
        except OSError:
            return False

    def _processes(self) -> list[psutil.Process]:
        """Return the processes with the server's folder in their environment: the server, its helpers, and the port mapper."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                is_mine = process.environ().get("RABBITMQ_MNESIA_BASE") == self._env["RABBITMQ_MNESIA_BASE"]
                if is_mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


def _write_certificates(folder: Path) -> tuple[Path, Path]:
    """Write a CA certificate, and a certificate it signed for 127.0.0.1 and the user `guest`, with its key."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("authority", "guest")]
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    made = []
    for key, name in zip(keys, names, strict=True):
        is_authority = key is keys[0]
        builder = x509.CertificateBuilder(names[0], name, key.public_key(), x509.random_serial_number(), now - day, now + day)
        builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        if not is_authority:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), critical=False)
        made.append(builder.sign(keys[0], hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    private = keys[1].private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    paths = folder / "authority.pem", folder / "certificate.pem"
    paths[0].write_bytes(made[0])
    paths[1].write_bytes(private + made[1])
    return paths


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMq]:
    """The running server."""
    if not list(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")):
        pytest.skip("RabbitMQ is not installed: apt-get install rabbitmq-server")
    folder = Path(tempfile.mkdtemp(prefix="lab-rabbitmq-"))
    made = RabbitMq(folder)
    try:
        made.start()
        yield made
    finally:
        made.kill()
        shutil.rmtree(folder)
