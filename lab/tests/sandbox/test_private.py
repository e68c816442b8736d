"""The sandbox: real namespaces, and their leftovers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import SandboxError
from ringroad_lab.sandbox.private import OUTSIDE, PARENT, Sandbox

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

LOOK = """
import json, os, subprocess, sys
print(json.dumps({
    "links": [link["ifname"] for link in json.loads(subprocess.check_output(["ip", "-j", "link"]))],
    "lo": open("/sys/class/net/lo/flags").read().strip(),
    "sys": os.listdir("/sys/class/net"),
    "processes": [int(name) for name in os.listdir("/proc") if name.isdigit()],
    "run": os.listdir("/run"), "tmpdir": os.environ["TMPDIR"], "input": sys.stdin.readline()}), flush=True)
"""


def test_a_command_has_its_own_network_processes_and_folders() -> None:
    sandbox = Sandbox.start([sys.executable, "-c", LOOK])
    sandbox.stdin.write("hello\n")
    seen = json.loads(sandbox.stdout.readline())
    assert sandbox.close() == 0
    assert seen["links"] == seen["sys"] == ["lo"]
    assert int(seen["lo"], 16) & 1, "the loopback interface is up"
    assert seen["processes"][0] == 1
    assert len(seen["processes"]) == 2
    assert (seen["run"], seen["tmpdir"], seen["input"]) == (["tmp"], "/run/tmp", "hello\n")


def test_without_namespaces_the_sandbox_is_a_command_with_pipes() -> None:
    sandbox = Sandbox.start(["sh", "-c", "readlink /proc/self/ns/net; exit 7"], private=False)
    assert sandbox.stdout.read().strip() == os.readlink("/proc/self/ns/net")
    assert sandbox.close() == 7


def test_a_command_that_does_not_end_is_killed() -> None:
    marker = f"86400.{uuid.uuid4().int % 10**9}"
    sandbox = Sandbox.start(["sleep", marker])
    assert wait_until(lambda: bool(with_argument(marker, "sleep")), 10)
    assert sandbox.wait(0.01) is None
    assert sandbox.close(timeout_s=0.05) == 137
    assert wait_until(lambda: not with_argument(marker), 10)


def test_orphans_end_with_the_command() -> None:
    marker = f"86400.{uuid.uuid4().int % 10**9}"
    sandbox = Sandbox.start(["sh", "-c", f"setsid sleep {marker} >/dev/null & echo started; exit 0"])
    assert sandbox.stdout.readline() == "started\n"
    assert sandbox.close() == 0
    assert wait_until(lambda: not with_argument(marker), 10)


def test_a_first_process_that_lost_unshare_before_its_start_runs_nothing(tmp_path: Path) -> None:
    outside = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    started = tmp_path / "started"
    # `unshare` of another PID than the first process looks for is one that was killed before the kernel knew of its child.
    unshare = ("unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc")
    killed = subprocess.run(
        [*unshare, sys.executable, "-P", "-m", "ringroad_lab.sandbox.first_process", "touch", str(started)],
        env={**os.environ, OUTSIDE: f"{outside}:{os.getpid()}", PARENT: str(os.getpid())},
        pass_fds=(outside,),
    )
    os.close(outside)
    assert killed.returncode == 125
    assert not started.exists()


def test_failures_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors_file = tmp_path / "errors"
    with errors_file.open("wb") as errors:
        sandbox = Sandbox.start(["ringroad-no-such"], stderr=errors)
    assert sandbox.close() == 127
    assert errors_file.read_text() == "cannot run ringroad-no-such: No such file or directory\n"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SandboxError, match="need root"):
        Sandbox.start(["true"])


# A lab with everything that a run creates: interfaces, namespaces by name, a mount, a bridge, processes in their own sessions.
LAB = """
import sys
from ringroad_lab.sandbox.private import OUTSIDE, PARENT, Sandbox
marker = sys.argv[1]
script = f'''
ip netns add {marker}
ip link add g{marker} type veth peer name d{marker}
ip link set d{marker} netns {marker}
ip -n {marker} link add br{marker} type bridge
mount -t tmpfs {marker} /mnt
setsid ip netns exec {marker} sh -c "sleep 86400; :" {marker} &
readlink /proc/self/ns/net
exec sh -c "sleep 86400; :" {marker}
'''
sandbox = Sandbox.start(["sh", "-c", script])
print(sandbox.stdout.readline(), end="", flush=True)
sandbox.wait()
"""


def test_a_killed_lab_leaves_nothing() -> None:
    marker = uuid.uuid4().hex[:8]
    lab = start_lab(marker)
    started = time.monotonic()
    namespace = read_line(lab)
    whole_s = time.monotonic() - started
    assert namespace.startswith("net:")
    assert wait_until(lambda: len(with_argument(marker, "sh")) > 1, 10)
    # While the namespace is held open, no other namespace gets its number.
    with open(f"/proc/{with_argument(marker, 'sh')[0]}/ns/net", "rb"):
        kill(lab)
        assert_nothing_left(marker)
        assert wait_until(lambda: not users_of(namespace), 10)

    # Kill labs at several moments of their setup.
    for part in (0.1, 0.3, 0.5, 0.7, 0.9):
        marker = uuid.uuid4().hex[:8]
        lab = start_lab(marker)
        time.sleep(part * whole_s)
        kill(lab)
        assert_nothing_left(marker)


def start_lab(marker: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", LAB, marker], stdout=subprocess.PIPE, text=True)


def read_line(lab: subprocess.Popen[str]) -> str:
    assert lab.stdout is not None
    return lab.stdout.readline().strip()


def kill(lab: subprocess.Popen[str]) -> None:
    lab.kill()
    lab.wait()
    assert lab.stdout is not None
    lab.stdout.close()


def with_argument(marker: str, program: str = "") -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if any(marker in argument for argument in command) and program in command[0]:
            found.append(process.pid)
    return found


def assert_nothing_left(marker: str) -> None:
    assert wait_until(lambda: not with_argument(marker), 10)
    assert marker not in Path("/proc/self/mountinfo").read_text()
    assert marker not in "".join(os.listdir("/sys/class/net"))
    assert not Path("/run/netns", marker).exists()


def users_of(namespace: str) -> list[Path]:
    found = []
    for link in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            if os.readlink(link) == namespace:
                found.append(link)
        except OSError:
            continue
    return found
