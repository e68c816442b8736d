"""A PostgreSQL server for tests. Import the fixture `postgres_socket` to use it; all tests of a process share one server."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pg8000.native
import pytest

_POSTGRES_START_S = 60


@pytest.fixture(scope="session")
def postgres_socket() -> Iterator[Path]:
    """Start a private PostgreSQL server and return its socket: it listens on no port, and ends with the tests."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    # PostgreSQL does not run as root, and socket paths have a length limit.
    user = pwd.getpwnam("postgres") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    folder = Path(tempfile.mkdtemp(prefix="lab-pg-", dir="/tmp"))
    os.chown(folder, user.pw_uid, user.pw_gid)
    identity: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    initdb: list[str | Path] = [
        programs[-1] / "initdb",
        "-D",
        folder / "data",
        "-U",
        "lab",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C",
        "--no-sync",
    ]
    subprocess.run(initdb, check=True, capture_output=True, cwd=folder, timeout=_POSTGRES_START_S, **identity)
    argv: list[str | Path] = [programs[-1] / "postgres", "-D", folder / "data", "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"]
    server = subprocess.Popen(argv, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **identity)
    try:
        address = folder / ".s.PGSQL.5432"
        deadline = time.monotonic() + _POSTGRES_START_S
        while not _answers(address):
            assert server.poll() is None, "PostgreSQL ended"
            assert time.monotonic() < deadline, "PostgreSQL does not answer"
            time.sleep(0.05)
        yield address
    finally:
        # An immediate shutdown, with all connections: no data is kept.
        server.send_signal(signal.SIGQUIT)
        try:
            server.wait(30)
        finally:
            server.kill()
            shutil.rmtree(folder)


def _answers(address: Path) -> bool:
    try:
        pg8000.native.Connection("lab", unix_sock=str(address), database="postgres").close()
    except (pg8000.native.InterfaceError, pg8000.native.DatabaseError, OSError):
        return False
    return True


def make_user(socket: Path) -> str:
    """Create a user with an empty schema of the same name, which is faster than creating a database; return the name."""
    user = f"lab_{uuid.uuid4().hex}"
    connection = pg8000.native.Connection("lab", unix_sock=str(socket), database="postgres")
    connection.run(f"CREATE ROLE {user} LOGIN")
    connection.run(f"CREATE SCHEMA AUTHORIZATION {user}")
    connection.close()
    return user
