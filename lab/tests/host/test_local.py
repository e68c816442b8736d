"""This machine as a host: real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil
import pytest

from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import HostError, MissingProgramError
from ringroad_lab.host.local import OUTPUT_KEPT_BYTES, LocalHost


@pytest.fixture
def host(tmp_path: Path) -> Iterator[LocalHost]:
    made = LocalHost(tmp_path)
    yield made
    made.close()


def test_a_command_gives_its_output_and_takes_input(host: LocalHost) -> None:
    completed = host.run(["cat"], stdin="frames\n")
    assert (completed.status, completed.stdout, completed.stderr) == (0, "frames\n", "")


def test_a_failed_command_is_an_error_with_what_it_said(host: LocalHost) -> None:
    with pytest.raises(HostError, match="status 3: no carrier"):
        host.run(["sh", "-c", "echo no carrier >&2; exit 3"])
    assert host.run(["sh", "-c", "exit 3"], check=False).status == 3


def test_a_command_that_does_not_end_is_killed_with_its_children(host: LocalHost) -> None:
    marker = "86399.25"
    with pytest.raises(HostError, match=r"did not end within 0\.2 s"):
        host.run(["sh", "-c", f"sleep {marker} & sleep {marker}"], timeout_s=0.2)
    assert not [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", marker]]


def test_a_program_that_is_not_there_is_named(host: LocalHost) -> None:
    with pytest.raises(HostError, match="there is no program ringroad-no-such"):
        host.start("nothing", ["ringroad-no-such"])
    with pytest.raises(HostError, match="cannot run ringroad-no-such"):
        host.run(["ringroad-no-such"])
    with pytest.raises(MissingProgramError, match="ringroad-no-such is not installed on this machine: apt-get install ringroad-pkg"):
        host.require("ringroad-no-such", "ringroad-pkg")


def test_output_is_awaited_and_kept_in_a_log(host: LocalHost) -> None:
    process = host.start("talker", ["sh", "-c", "echo ready; exec sleep 100"])
    assert process.wait_output("ready", 10)
    assert process.is_running()
    assert not process.wait_output("never said", 0.05)
    assert host.read_text(host.folder / "talker.log") == "ready\n"


def test_waiting_ends_with_the_process(host: LocalHost) -> None:
    process = host.start("short", ["sh", "-c", "echo broken; exit 4"])
    assert not process.wait_output("ready", 60)
    assert not process.is_running()
    assert process.output() == "broken\n"
    assert process.stop() == 4


def test_a_child_that_holds_the_output_open_does_not_hide_the_end(host: LocalHost) -> None:
    process = host.start("parent", ["sh", "-c", "sleep 86399.5 & echo left; exit 0"])
    assert not process.wait_output("ready", 60)
    assert process.stop() == 0
    assert not [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "86399.5"]]


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


def test_a_process_dies_with_a_lab_that_is_killed(tmp_path: Path) -> None:
    source = (
        "import sys, time, pathlib\n"
        "from ringroad_lab.host.local import LocalHost\n"
        "process = LocalHost(pathlib.Path(sys.argv[1])).start('left', ['sh', '-c', 'echo ready; exec sleep 100'])\n"
        "process.wait_output('ready', 30)\n"
        "print(process.pid, flush=True)\n"
        "time.sleep(100)\n"
    )
    lab = subprocess.Popen([sys.executable, "-c", source, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert lab.stdout is not None
    with lab.stdout:
        pid = int(lab.stdout.readline())
        assert psutil.pid_exists(pid)
        lab.kill()
        lab.wait()
    assert wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, 10)
