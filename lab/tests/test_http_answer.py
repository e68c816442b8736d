"""Answers of malicious or broken servers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests

from ringroad_lab.http_answer import AnswerTooLongError, read_answer


@contextmanager
def server(head: bytes, *, then: bytes = b"", again: bool = False) -> Iterator[str]:
    """Run a server that answers one request with these bytes; with `again`, repeat `then` until the client disconnects."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            try:
                connection.sendall(head + then)
                while again and not ended.wait(0.005):
                    connection.sendall(then)
            except OSError:
                return

    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            ended.set()
            thread.join()


def get(url: str, *, within_s: float = 10.0, most_bytes: int = 1000) -> bytes:
    with requests.get(url, stream=True, timeout=10.0) as answer:
        return read_answer(answer, within_s=within_s, most_bytes=most_bytes)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"Content-Length: 5\r\n\r\n", b"whole"),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"3\r\nwho\r\n2\r\nle\r\n0\r\n\r\n"),
        (b"Connection: close\r\n\r\n", b"whole"),
    ],
)
def test_an_answer_is_read_to_its_end(head: bytes, body: bytes) -> None:
    with server(b"HTTP/1.1 200 OK\r\n" + head, then=body) as url:
        assert get(url) == b"whole"


def test_an_answer_at_the_limit_is_read_and_one_byte_more_is_rejected() -> None:
    for length, is_read in ((1000, True), (1001, False)):
        with server(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length, then=b"x" * length) as url:
            if is_read:
                assert get(url) == b"x" * length
            else:
                with pytest.raises(AnswerTooLongError, match="longer than 1000 bytes"):
                    get(url)


def test_a_server_that_sends_byte_by_byte_times_out() -> None:
    with (
        server(b"HTTP/1.1 200 OK\r\n\r\n", then=b"x", again=True) as url,
        pytest.raises(requests.exceptions.Timeout, match=r"within 0\.2 s"),
    ):
        get(url, within_s=0.2, most_bytes=1 << 40)


def test_a_server_that_stops_during_its_answer_times_out() -> None:
    with (
        server(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", then=b"", again=True) as url,
        pytest.raises(requests.exceptions.Timeout),
        requests.get(url, stream=True, timeout=0.2) as answer,
    ):
        read_answer(answer, within_s=60, most_bytes=1000)


@pytest.mark.parametrize(
    "text",
    [b"Content-Length: 9\r\n\r\nhalf", b"Transfer-Encoding: chunked\r\n\r\n9\r\nhalf", b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n"],
)
def test_an_incomplete_answer_is_a_lost_connection(text: bytes) -> None:
    with server(b"HTTP/1.1 200 OK\r\n" + text) as url, pytest.raises(requests.exceptions.ConnectionError):
        get(url)


def test_a_compressed_answer_is_not_decompressed() -> None:
    with server(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\r\n", then=b"packed") as url:
        assert get(url) == b"packed"
