"""One run at a time: the holder of the machine is reported, and holds the lock only while it lives."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringroad_lab.errors import MachineBusyError, SandboxError
from ringroad_lab.sandbox.machine_lock import LOCK_DESCRIPTOR_VARIABLE, LOCK_VARIABLE, machine_holder, machine_lock, take_machine

HOLD = (
    "import sys\nfrom ringroad_lab.sandbox.machine_lock import machine_lock\n"
    "with machine_lock('aaaa1111'):\n print('held', flush=True)\n sys.stdin.read()\n"
)


def test_the_holder_is_named_and_its_lock_is_released_when_it_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCK_VARIABLE, str(tmp_path / "lock"))
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdin is not None
    assert holder.stdout is not None
    with holder.stdin, holder.stdout:
        assert holder.stdout.readline() == "held\n"
        message = rf"another run measures on this machine \(process {holder.pid} of {getpass.getuser()}, since 20.*, run aaaa1111\)"
        with pytest.raises(MachineBusyError, match=message), machine_lock("bbbb2222"):
            pytest.fail("there are two")
        with pytest.raises(MachineBusyError, match=rf"run aaaa1111 is under way .*`kill {holder.pid}`"), machine_lock("aaaa1111"):
            pytest.fail("it is measured twice")
        holder.kill()
        holder.wait()
    with machine_lock("bbbb2222"):
        pass


def test_a_lock_that_cannot_be_created_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for path in ("absent/lock", "link"):
        monkeypatch.setenv(LOCK_VARIABLE, str(tmp_path / path))
        with pytest.raises(SandboxError, match=f"the machine's lock .*{path} cannot be opened.*{LOCK_VARIABLE}"), machine_lock("a"):
            pytest.fail("there is no lock")
    assert not (tmp_path / "target").exists()


def test_an_inherited_lock_is_held_until_the_last_process_releases_it() -> None:
    lock = take_machine("aaaa1111")
    environment = {**os.environ, LOCK_DESCRIPTOR_VARIABLE: str(lock)}
    heir = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=[lock], env=environment
    )
    os.close(lock)
    assert heir.stdin is not None
    assert heir.stdout is not None
    with heir.stdin, heir.stdout:
        assert heir.stdout.readline() == "held\n"
        holder = machine_holder()
        assert holder
        assert (holder.pid, holder.run_id) == (heir.pid, "aaaa1111")
        with pytest.raises(MachineBusyError, match=f"process {heir.pid}"):
            take_machine("bbbb2222")
        heir.kill()
        heir.wait()
    assert machine_holder() is None


def test_an_inherited_descriptor_that_is_not_the_lock_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = take_machine("aaaa1111")
    with (tmp_path / "another").open("wb") as another:
        for descriptor in ("x", "-1", "9999", str(another.fileno())):
            monkeypatch.setenv(LOCK_DESCRIPTOR_VARIABLE, descriptor)
            with pytest.raises(SandboxError, match="is not the machine's lock"), machine_lock("a"):
                pytest.fail("it is not a lock")
    os.close(lock)
