"""A machine reached by SSH, in a sandbox: a second network namespace with its own sshd, joined by a veth pair.

Writes the result of each check, by its name, as one line of JSON.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import HostError
from ringroad_lab.host.ssh import SshHost
from ringroad_lab.scenario.model import Scenario, SiteHost
from ringroad_lab.setup.test_setup import TestSetup
from ringroad_lab.trial import Load, TrialRequest
from sandboxed import answer

NEAR, FAR, PORT = "192.0.2.1", "192.0.2.2", 2222
NETNS = "far"


def command(text: str) -> None:
    subprocess.run(text.split(), check=True, stdout=subprocess.DEVNULL)


def build(folder: Path) -> None:
    """Create the other machine: an address, a path for frames in each direction, and an sshd."""
    command(f"ip netns add {NETNS}")
    for number in range(3):
        command(f"ip link add near{number} type veth peer name far{number} netns {NETNS}")
        command(f"ip link set near{number} up")
        command(f"ip -n {NETNS} link set far{number} up")
    command(f"ip -n {NETNS} link set lo up")
    command(f"ip address add {NEAR}/24 dev near0")
    command(f"ip -n {NETNS} address add {FAR}/24 dev far0")
    for key in ("host", "user", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    (folder / "known").write_text(f"[{FAR}]:{PORT} {(folder / 'host.pub').read_text()}")
    (folder / "nobody").write_text("")
    (folder / "config").write_text(
        f"ListenAddress {FAR}\nPort {PORT}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\nStrictModes no\n"
        "UsePAM no\nPidFile none\nPermitRootLogin yes\nPasswordAuthentication no\n"
        # With SHLVL=2 bash skips the user's start file, which would take longer than the whole test.
        "SetEnv SHLVL=2\n"
    )
    # sshd needs its folder for privilege separation.
    Path("/run/sshd").mkdir(parents=True, exist_ok=True)
    server = ["ip", "netns", "exec", NETNS, "/usr/sbin/sshd", "-D", "-f", str(folder / "config")]
    subprocess.Popen(server, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    query = ["ip", "netns", "exec", NETNS, "ss", "--no-header", "-ltn", f"sport = :{PORT}"]
    assert wait_until(lambda: bool(subprocess.run(query, capture_output=True, check=True).stdout), 10)


def error_of(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except HostError as error:
        return str(error)
    return ""


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def check_host(place: SiteHost) -> dict[str, Any]:
    host = SshHost(place)
    folder = Path(host.folder)
    results: dict[str, Any] = {"links": host.run(["ip", "-br", "link"]).stdout, "stdin": host.run(["cat"], stdin="ä\n").stdout}
    results["status"] = host.run(["sh", "-c", "exit 3"], check=False).status
    results["env"] = host.run(["sh", "-c", 'echo "$A"'], env={"A": "it's"}).stdout
    results["slow"] = error_of(lambda: host.run(["sleep", "60"], timeout_s=0.5))
    results["failed"] = error_of(lambda: host.run(["sh", "-c", "echo why >&2; exit 1"]))
    results["no program"] = error_of(lambda: host.start("x", ["no-such-program"]))
    host.write_text(host.folder / "a" / "b", "text\n")
    results["file"] = host.read_text(host.folder / "a" / "b")
    results["no file"] = error_of(lambda: host.read_text(PurePosixPath("/no/such/file")))
    results["programs"] = [host.find_program("ip"), host.find_program("no-such-program")]
    cpu = max(os.sched_getaffinity(0))
    process = host.start("sleeper", ["sh", "-c", "taskset -cp $$; sleep 600"], cpus=frozenset({cpu}))
    results["output"] = process.wait_output(f"list: {cpu}\n", 10)
    results["runs"] = process.is_running() and is_alive(process.pid)
    results["stopped"] = [process.stop(), process.is_running(), is_alive(process.pid)]
    stubborn = host.start("stubborn", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"])
    stubborn.wait_output("ready", 10)
    results["killed"] = [stubborn.stop(0.2), is_alive(stubborn.pid)]
    results["ended"] = [(ended := host.start("ended", ["sh", "-c", "exit 7"])).wait_output("never", 10), ended.stop()]
    left = host.start("left", ["sleep", "600"])
    host.close()
    results["closed"] = [is_alive(left.pid), folder.exists()]
    return results


def check_lost_connection(place: SiteHost) -> dict[str, Any]:
    host = SshHost(place)
    folder = Path(host.folder)
    process = host.start("left", ["sleep", "600"])
    # As when this side is killed: the connection is not closed properly.
    host._loop.call_soon_threadsafe(host.connection.abort)
    results: dict[str, Any] = {"output": process.wait_output("never", 10), "runs": process.is_running()}
    results["cleaned up"] = wait_until(lambda: not is_alive(process.pid) and not folder.exists(), 10)
    results["error"] = error_of(lambda: host.run(["true"]))
    host.close()
    return results


def check_setup(place: SiteHost) -> dict[str, Any]:
    """Send frames from here through a Linux bridge on the other machine."""
    frame = {"name": "64", "parts": [[64, 1]]}
    nics = [{"generator_interface": f"near{number}", "dut_interface": f"far{number}"} for number in (1, 2)]
    site = {**place.model_dump(mode="json"), "nics": nics}
    fields = {
        "name": "remote",
        "duts": [{"label": "bridge", "driver": "linux-bridge", "host": place.name}],
        "physical": "nic",
        "methods": [{"name": "throughput"}],
        "frames": [frame],
        "huge_pages": False,
        "hosts": [site],
    }
    scenario = Scenario.model_validate(fields)
    host = SshHost(place)
    try:
        results: dict[str, Any] = {}
        # The second test setup verifies that the first one returned the interfaces.
        for _ in range(2):
            with TestSetup(scenario, scenario.duts[0], dut_host=host) as setup:
                load = Load.model_validate({"frame": frame, "rate_fps": 500})
                result = setup.generator.trial(TrialRequest(load=load, duration_s=0.2))
                results = {"received": [way.received_frames for way in result.directions], "counters": setup.collect()}
        return results
    finally:
        host.close()


def check(_request: object) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder)
        place = SiteHost(name="far", address=FAR, port=PORT, key_file=str(folder / "user"), known_hosts_file=str(folder / "known"))

        def connect_error(**changed: object) -> str:
            return error_of(lambda: SshHost(place.model_copy(update=changed)))

        return {
            "refused": connect_error(port=PORT + 1),
            "unknown": connect_error(known_hosts_file=str(folder / "nobody")),
            "stranger": connect_error(key_file=str(folder / "stranger")),
            "no route": connect_error(address="203.0.113.1"),
            "no key": connect_error(key_file="/no/such/key"),
            "host": check_host(place),
            "lost": check_lost_connection(place),
            "setup": check_setup(place),
        }


if __name__ == "__main__":
    answer(check)
