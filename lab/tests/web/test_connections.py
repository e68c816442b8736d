"""Clients that keep the server waiting: each for a bounded time, and a bounded number at once."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator

import httpx
import pytest
import uvicorn

from ringroad_lab.crowd import Complaints
from ringroad_lab.deadline import wait_until
from ringroad_lab.fleet.sources.http import HttpHook, HttpSource
from ringroad_lab.fleet.sources.interface import SOURCES
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.web import connections
from ringroad_lab.web.application import make_application
from ringroad_lab.web.connections import BoundedListener, TimedHttp
from ringroad_lab.web.settings import WebSettings

WAIT_S = 60.0
MOST = 4
Connect = Callable[[bytes], socket.socket]


@pytest.fixture
def address(store: ResultStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A server with few places; yields its address."""
    # Each server reports the first of its complaints.
    monkeypatch.setattr(TimedHttp, "late", Complaints("late", logging.getLogger("uvicorn.error").warning))
    generic = SOURCES["generic"]
    assert issubclass(generic, HttpSource)
    application = make_application(store, WebSettings(owner="ann", owner_token="x", hooks={"ci": HttpHook(generic.dialect, b"secret")}))
    with BoundedListener(socket.AF_INET, most=MOST) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        config = uvicorn.Config(application, http=TimedHttp, log_level="warning", lifespan="off", ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join(WAIT_S)


@pytest.fixture
def connect(address: tuple[str, int]) -> Iterator[Connect]:
    """Opens a connection and sends some bytes."""
    opened = []

    def open_and_send(sent: bytes) -> socket.socket:
        opened.append(socket.create_connection(address, WAIT_S))
        opened[-1].sendall(sent)
        return opened[-1]

    yield open_and_send
    for each in opened:
        each.close()


def rest(connection: socket.socket) -> bytes:
    """Read to the end of a connection."""
    received = b""
    try:
        while more := connection.recv(1 << 16):
            received += more
    except ConnectionResetError:
        pass
    return received


HALF_HEAD = b"GET /login HTTP/1.1\r\nHos"
HEAD = b"POST /hooks/ci HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
WHOLE = b"GET /login HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    ("limit", "sent", "answers"),
    [
        ("HEAD_WITHIN_S", b"", []),
        ("HEAD_WITHIN_S", HALF_HEAD, [408]),
        # The time does not begin anew with each byte, but with each request.
        ("HEAD_WITHIN_S", WHOLE + HALF_HEAD, [200, 408]),
        ("EXCHANGE_WITHIN_S", HEAD + b"half", [408]),
    ],
)
def test_a_request_that_does_not_end_is_ended(
    monkeypatch: pytest.MonkeyPatch,
    connect: Connect,
    address: tuple[str, int],
    caplog: pytest.LogCaptureFixture,
    limit: str,
    sent: bytes,
    answers: list[int],
) -> None:
    monkeypatch.setattr(connections, limit, 0.5)
    received = rest(connect(sent))
    assert [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]] == answers
    # A connection that was only opened is nothing to complain of.
    assert ("late: 1 so far, the last from 127.0.0.1" in caplog.text) is (408 in answers)
    assert httpx.get(f"http://{address[0]}:{address[1]}/login", timeout=WAIT_S).status_code == 200


def test_an_answer_that_is_not_read_is_ended(
    monkeypatch: pytest.MonkeyPatch, connect: Connect, address: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "EXCHANGE_WITHIN_S", 0.5)
    # More than the buffers of a connection hold.
    unread = connect(b"GET /static/plotly.min.js HTTP/1.1\r\nHost: x\r\n\r\n" * 4)
    assert wait_until(lambda: "late: 1 so far, the last from 127.0.0.1" in caplog.text, WAIT_S)
    assert len(rest(unread)) < 16_000_000


def test_of_too_many_connections_the_oldest_one_ends(connect: Connect, address: tuple[str, int], caplog: pytest.LogCaptureFixture) -> None:
    held = [connect(HALF_HEAD) for _ in range(MOST)]
    assert httpx.get(f"http://{address[0]}:{address[1]}/login", timeout=WAIT_S).status_code == 200
    # The page's own connection took the place of the oldest one.
    assert rest(held[0]) == b""
    # The others go on.
    held[-1].sendall(WHOLE[len(HALF_HEAD) :])
    assert held[-1].recv(100).startswith(b"HTTP/1.1 200")
    assert caplog.text.count(f"connections ended, because more than {MOST} were open: 1 so far, the last from 127.0.0.1") == 1


def test_a_client_that_leaves_during_its_request_is_not_an_error(
    connect: Connect, address: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    for sent in (HALF_HEAD, HEAD + b"half", b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf"):
        connection = connect(sent)
        connection.shutdown(socket.SHUT_WR)
        rest(connection)
    assert httpx.get(f"http://{address[0]}:{address[1]}/login", timeout=WAIT_S).status_code == 200
    assert caplog.text == ""
