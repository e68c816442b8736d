"""The verbs `ringroad-lab serve` and `ringroad-lab token`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from ringroad_lab.cli.main import make_app
from ringroad_lab.errors import LabError
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.web.tokens import digest, token_name


def run(*arguments: str) -> str:
    """Run a command; return its output."""
    result = CliRunner().invoke(make_app(), list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


@pytest.fixture
def path(tmp_path: Path) -> str:
    """The location of the store."""
    return str(tmp_path / "results.db")


@pytest.mark.parametrize("name", ["a b", "-x", "é", "x" * 65, ""])
def test_a_bad_name_is_refused(path: str, name: str) -> None:
    with pytest.raises(LabError, match="letters"):
        run("token", "add", "--store", path, "--", name)


def test_a_missing_token_cannot_be_removed(path: str) -> None:
    with pytest.raises(LabError, match="no token 'nobody'"):
        run("token", "remove", "nobody", "--store", path)


def test_a_token_is_shown_once_and_not_stored(path: str) -> None:
    secret = run("token", "add", "ci", "--store", path).strip()

    with ResultStore(path) as store:
        assert token_name(store, digest(secret)) == "ci"
    assert secret.encode() not in Path(path).read_bytes()
    assert run("token", "list", "--store", path) == "ci\n"
    with pytest.raises(LabError, match="already"):
        run("token", "add", "ci", "--store", path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cert", "x.pem"], "go together"),
        (["--cert", "/nonexistent", "--key", "/nonexistent"], "no such file"),
        (["--listen", "192.0.2.1"], "cannot listen on 192.0.2.1"),
        (["--listen", "no such host"], "cannot listen"),
        (["--login-proxy", "proxy"], "token add proxy"),
    ],
)
def test_a_failed_start_reports_the_reason(path: str, arguments: list[str], words: str) -> None:
    with pytest.raises(LabError, match=words):
        run("serve", "--store", path, "--port", "0", *arguments)


def test_an_invalid_certificate_is_reported(path: str, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_text("nonsense")
    key.write_text("nonsense")
    with pytest.raises(LabError, match=r"cert\.pem.*key\.pem.*PEM"):
        run("serve", "--store", path, "--port", "0", "--cert", str(cert), "--key", str(key))


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_server_starts_answers_and_ends(path: str, end: signal.Signals) -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "ringroad_lab.cli.main", "serve", "--store", path, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        address = line.split(" at ")[1].split()[0]
        assert address.startswith("http://127.0.0.1:")
        link = server.stdout.readline().split()[-1]
        with httpx.Client(timeout=30) as browser:
            assert browser.get(address + "login").status_code == 200
            assert browser.get(address + "runs").headers["location"].startswith("/login")
            assert browser.get(link).headers["location"] == "/runs"
            assert browser.get(address + "runs").status_code == 200
        assert httpx.get(address + "login", timeout=30, headers={"Host": "evil.example"}).status_code == 400
        server.send_signal(end)
        _, complaints = server.communicate(timeout=30)
        assert "Traceback" not in complaints
        assert "ERROR" not in complaints
        assert server.returncode in (0, -end)
    finally:
        server.kill()
        server.communicate()
