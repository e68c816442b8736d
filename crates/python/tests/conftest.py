"""A daemon for each test."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

import ringroad

BINARIES = Path(os.environ["RINGROAD_BIN_DIR"])
PATIENCE_S = 30


@pytest.fixture(autouse=True)
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ringroad.Daemon]:
    """Run a daemon that every port of the test uses."""
    socket = tmp_path / "s"
    monkeypatch.setenv("RINGROAD_SOCKET", str(socket))
    monkeypatch.setenv("RINGROAD_DAEMON", str(BINARIES / "ringroadd"))
    monkeypatch.setenv("PATH", f"{BINARIES}:{os.environ['PATH']}")
    (tmp_path / "ringroad.toml").touch()
    process = subprocess.Popen([BINARIES / "ringroadd", "--socket", socket, "--config", tmp_path / "ringroad.toml"])
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection = ringroad.Daemon(socket)
            break
        except ringroad.RingroadError:
            # It listens some time after its start, without a notification.
            assert time.monotonic() < end
            time.sleep(0.005)
    yield connection
    process.terminate()
    assert process.wait(PATIENCE_S) == 0


class Recipe:
    """A recipe that runs."""

    def __init__(self, name: str, *arguments: str, python: str = sys.executable) -> None:
        """Start it."""
        recipe = Path(__file__).parent.parent / "recipes" / name
        self.process = subprocess.Popen([python, "-u", recipe, *arguments], stdout=subprocess.PIPE, text=True)

    def await_line(self) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout
        return self.process.stdout.readline()

    def await_end(self) -> str:
        """Return what else it prints, after it has ended well."""
        printed, _ = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0
        return printed

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it."""
        self.process.kill()
        self.process.communicate()
