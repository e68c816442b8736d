"""Downloads over HTTP from a local server: within limits, and complete or not at all."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from file_server import file_server, served

from ringroad_lab.build.download import download
from ringroad_lab.errors import HostError


def answering(*answers: tuple[int, bytes, int]) -> Callable[..., BaseHTTPRequestHandler]:
    """Send these responses in turn: status, content and announced length; repeat the last one."""
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content, length = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002
            return

    return Handler


def test_a_file_is_saved_under_its_name(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "a b.deb").write_bytes(b"content")
    with file_server(tmp_path / "from") as url:
        path = download(f"{url}/a%20b.deb?x=1", tmp_path)
    assert path == tmp_path / "a b.deb"
    assert path.read_bytes() == b"content"


def test_a_request_is_retried_after_temporary_failures(tmp_path: Path) -> None:
    with served(answering((503, b"", 0), (200, b"half", 8), (200, b"complete", 8))) as url:
        path = download(f"{url}/x", tmp_path, pause_s=0.01)
    assert path.read_bytes() == b"complete"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((503, b"", 0), "status 503"),
        ((404, b"", 0), "status 404"),
        ((200, b"x" * 2000, 2000), "longer than 1000 bytes"),
        ((200, b"x", 10), "IncompleteRead"),
    ],
)
def test_an_incomplete_download_is_reported(tmp_path: Path, answer: tuple[int, bytes, int], why: str) -> None:
    with served(answering(answer)) as url, pytest.raises(HostError, match=why):
        download(f"{url}/x", tmp_path, max_bytes=1000, pause_s=0.01)


def test_an_endless_response_is_aborted(tmp_path: Path) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"x" * (1 << 20))
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002
            return

    with served(Handler) as url, pytest.raises(HostError, match="did not end within"):
        download(f"{url}/x", tmp_path, within_s=0.2)


def test_an_unreachable_server_is_reported(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"http://127\.0\.0\.1:9/x"):
        download("http://127.0.0.1:9/x", tmp_path, pause_s=0.01)
