"""This machine as a host, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil
import pytest

from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import HostError, MissingProgramError
from ringroad_lab.host.local import LocalHost
from ringroad_lab.host.output import OUTPUT_KEPT_BYTES


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    made = LocalHost(tmp_path)
    yield made
    made.close()


def test_a_command_returns_its_output_and_reads_input(host: LocalHost) -> None:
    completed = host.run(["cat"], stdin="frames\n")
    assert (completed.status, completed.stdout, completed.stderr) == (0, "frames\n", "")


def test_a_failed_command_is_an_error_with_its_output(host: LocalHost) -> None:
    with pytest.raises(HostError, match="status 3: no carrier"):
        host.run(["sh", "-c", "echo no carrier >&2; exit 3"])
    assert host.run(["sh", "-c", "exit 3"], check=False).status == 3


@pytest.fixture
def marker() -> str:
    """A time to sleep that no other test on the machine uses."""
    return f"86399.{uuid.uuid4().int % 10**9}"


def sleepers(marker: str) -> list[int]:
    return [process.pid for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == ["sleep", marker]]


@pytest.mark.parametrize("end", ["wait", "exit 0"])
def test_a_command_that_does_not_end_is_killed_with_its_children(host: LocalHost, marker: str, end: str) -> None:
    with pytest.raises(HostError, match=r"did not end within 0\.2 s"):
        host.run(["sh", "-c", f"sleep {marker} & {end}"], timeout_s=0.2)
    assert wait_until(lambda: not sleepers(marker), 10)


def test_system_folders_are_searched_for_every_program(host: LocalHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert host.run(["sh", "-c", "command -v ip"]).stdout == f"{host.require('ip', 'iproute2')}\n"


def test_a_missing_program_is_named(host: LocalHost) -> None:
    with pytest.raises(HostError, match="there is no program ringroad-no-such"):
        host.start("nothing", ["ringroad-no-such"])
    with pytest.raises(HostError, match="cannot run ringroad-no-such"):
        host.run(["ringroad-no-such"])
    with pytest.raises(MissingProgramError, match="ringroad-no-such is not installed on this machine: apt-get install ringroad-pkg"):
        host.require("ringroad-no-such", "ringroad-pkg")


def test_waiting_for_output(host: LocalHost) -> None:
    process = host.start("talker", ["sh", "-c", "echo ready; exec sleep 100"])
    assert process.wait_output("ready", 10)
    assert process.is_running()
    assert not process.wait_output("never printed", 0.05)
    assert process.output() == "ready\n"
    assert process.why_silent("ready", 10) is process.death() is None
    assert process.why_silent("never printed", 0.05) == "is not ready after 0.05 s: ready"


def test_waiting_ends_with_the_process(host: LocalHost) -> None:
    process = host.start("short", ["sh", "-c", "echo broken; exit 4"])
    assert not process.wait_output("ready", 60)
    assert not process.is_running()
    assert process.output() == "broken\n"
    assert process.stop() == 4
    assert process.why_silent("ready", 60) == process.death() == "ended with status 4: broken"


def test_the_output_of_an_ended_process_is_complete(host: LocalHost) -> None:
    for _ in range(20):
        process = host.start("short", ["sh", "-c", "echo last words"])
        assert wait_until(lambda process=process: not process.is_running(), 10, 0.0)  # type: ignore[misc]
        assert process.output() == "last words\n"


def test_a_child_that_holds_the_output_open_does_not_hide_the_end(host: LocalHost, marker: str) -> None:
    process = host.start("parent", ["sh", "-c", f"sleep {marker} & echo left; exit 0"])
    assert not process.wait_output("ready", 60)
    # The child ends with its parent, before `stop` is called.
    assert wait_until(lambda: not sleepers(marker), 10)
    assert process.stop() == 0


def test_a_detached_child_does_not_hide_the_end(host: LocalHost) -> None:
    process = host.start("parent", ["sh", "-c", "setsid yes & exit 3"])
    assert not process.wait_output("never printed", 60)
    assert process.stop() == 3


def test_a_process_that_closes_its_output_still_ends(host: LocalHost) -> None:
    process = host.start("silent", ["sh", "-c", "exec >&- 2>&-; sleep 0.2; exit 5"])
    assert not process.wait_output("ready", 60)
    assert process.stop() == 5


def test_output_in_memory_has_a_limit(host: LocalHost) -> None:
    process = host.start("loud", [sys.executable, "-c", f"print('x' * {3 * OUTPUT_KEPT_BYTES}); print('done')"])
    assert process.wait_output("done", 30)
    assert len(process.output()) == OUTPUT_KEPT_BYTES


def test_a_process_that_ignores_sigterm_is_killed(host: LocalHost) -> None:
    process = host.start("stubborn", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"])
    assert process.wait_output("ready", 10)
    assert process.stop(timeout_s=0.1) == -9
    assert process.stop() == -9


def test_a_process_is_bound_to_its_processors(host: LocalHost) -> None:
    cpu = max(os.sched_getaffinity(0))
    process = host.start("bound", ["sh", "-c", "echo ready; exec sleep 100"], cpus=frozenset({cpu}))
    assert process.wait_output("ready", 10)
    assert os.sched_getaffinity(process.pid) == {cpu}
    with pytest.raises(HostError, match=r"processors \[9999\]"):
        host.start("nowhere", ["true"], cpus=frozenset({9999}))


def test_files_are_written_with_their_folders_and_missing_ones_named(host: LocalHost) -> None:
    host.write_text(host.folder / "a/b.conf", "x = 1\n")
    assert host.read_text(host.folder / "a/b.conf") == "x = 1\n"
    assert host.read_text(PurePosixPath("/proc/self/comm"))
    with pytest.raises(HostError, match=r"cannot read .*absent: No such file"):
        host.read_text(host.folder / "absent")
    with pytest.raises(HostError, match="cannot write /proc/absent"):
        host.write_text(PurePosixPath("/proc/absent"), "")


def test_closing_ends_processes_and_removes_the_folder(tmp_path: Path) -> None:
    host = LocalHost(tmp_path)
    process = host.start("left", ["sleep", "100"])
    host.close()
    host.close()
    assert not process.is_running()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.005, 0.01, 1.0])
def test_a_killed_lab_leaves_no_process_and_no_file(tmp_path: Path, marker: str, after_s: float) -> None:
    source = (
        "import sys, pathlib\n"
        "from ringroad_lab.host.local import LocalHost\n"
        "print('begun', flush=True)\n"
        "host = LocalHost(pathlib.Path(sys.argv[1]))\n"
        "host.write_text(host.folder / 'some' / 'file', '')\n"
        "host.start('left', ['sleep', sys.argv[2]])\n"
        "host.run(['sleep', sys.argv[2]], timeout_s=100)\n"
    )
    lab = subprocess.Popen([sys.executable, "-c", source, str(tmp_path), marker], stdout=subprocess.PIPE, text=True)
    assert lab.stdout is not None
    with lab.stdout:
        assert lab.stdout.readline() == "begun\n"
        # Kill the lab during its start, or when everything runs.
        time.sleep(after_s)
        lab.kill()
        lab.wait()
    assert wait_until(lambda: not sleepers(marker) and not list(tmp_path.iterdir()), 10)
