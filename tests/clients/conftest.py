"""Fixtures: each test has its own server over its own daemon."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import snappi

# Only a failure waits this long: a busy machine may take its time.
PATIENCE_S = 120.0


def binary(name: str) -> str:
    """One of the binaries under test: from $RINGROAD_BIN_DIR, else from the debug build."""
    default = Path(__file__).parents[2] / "target" / "debug"
    path = Path(os.environ.get("RINGROAD_BIN_DIR", default)) / name
    assert path.is_file(), f"{path} is not built; run `make build`"
    return str(path)


@dataclass
class Daemon:
    """A daemon with a socket of its own."""

    folder: Path

    def environment(self) -> dict[str, str]:
        """Return what leads programs to this daemon."""
        socket = str(self.folder / "r.sock")
        return {**os.environ, "RINGROAD_SOCKET": socket, "RINGROAD_DAEMON": binary("ringroadd")}

    def run(self, *arguments: str) -> str:
        """Run a command to its end and return what it prints."""
        command = [binary("ringroad"), *arguments]
        done = subprocess.run(
            command, env=self.environment(), check=True, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S
        )
        return done.stdout

    def start(self, *arguments: str) -> tuple[subprocess.Popen[str], dict[str, Any]]:
        """Start a command that reports when it is ready, and wait for that."""
        command = [binary("ringroad"), "--json", *arguments]
        process = subprocess.Popen(command, env=self.environment(), stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        # A command that ends before it is ready closes its output.
        ready = json.loads(process.stdout.readline() or "{}")
        assert ready.get("ready"), f"{command} did not become ready"
        return process, ready


def stop(process: subprocess.Popen[str]) -> str:
    """End a command with an interrupt, like a user, and return its remaining output."""
    process.send_signal(signal.SIGINT)
    try:
        output, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 0
    return output


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """Start a daemon and end it even when the test fails."""
    # Not pytest's own folder, whose path is too long for a socket's.
    folder = Path(tempfile.mkdtemp(prefix="ringroad-otg-"))
    daemon = Daemon(folder)
    try:
        daemon.run("up")
        yield daemon
        daemon.run("down")
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def serve(daemon: Daemon) -> Iterator[Callable[..., str]]:
    """Start servers and return their locations, as the stock client takes them."""
    servers: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> str:
        process, ready = daemon.start("otg", "--listen", "127.0.0.1:0", *arguments)
        servers.append(process)
        location: str = ready["location"]
        return location

    yield start
    for server in servers:
        stop(server)


@pytest.fixture
def api(serve: Callable[..., str]) -> Any:  # noqa: ANN401 (snappi has no types)
    """Return the stock client of a server with HTTPS."""
    return snappi.api(location=serve(), verify=False)
