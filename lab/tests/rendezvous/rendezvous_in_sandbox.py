"""Runs a rendezvous in a sandbox: the server and each member have their own network namespace, joined by a bridge.

Runs the part that the caller names, and writes its result as one line of JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from ringroad_lab.deadline import wait_until
from ringroad_lab.rendezvous import member
from sandboxed import answer

SECRET = "a secret of the tests"
PATIENCE_S = 300.0
SERVER, SECOND, PORT = "10.9.0.1", "10.9.0.2", 6777
MEMBERS = ("generator", "dut", "dut2")
Ending = list[Any]


def command(text: str) -> None:
    subprocess.run(text.split(), check=True, stdout=subprocess.DEVNULL)


def await_(condition: Callable[[], bool], what: str) -> None:
    assert wait_until(condition, PATIENCE_S), f"timed out waiting for {what}"


class Process:
    """A program of a rendezvous in a network namespace."""

    def __init__(self, folder: Path, where: str, *argv: str, secret: str = SECRET) -> None:
        self.output = folder / f"{where}-{len(list(folder.iterdir()))}.log"
        env = {**os.environ, member.SECRET_VARIABLE: secret, "PYTHONUNBUFFERED": "1"}
        with self.output.open("wb") as output:
            # `ip netns exec` replaces itself with the program, so signals reach the program.
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", where, *argv], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=env
            )

    def output_text(self) -> str:
        return self.output.read_text(errors="replace")

    def await_output(self, text: str) -> None:
        await_(lambda: text in self.output_text() or self.process.poll() is not None, text)
        assert text in self.output_text(), self.output_text()

    def end(self) -> Ending:
        """Wait for the end of the program; return its exit status and its last line."""
        status = self.process.wait(PATIENCE_S)
        return [status, (self.output_text().splitlines() or [""])[-1]]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Place:
    """The network, and a working folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "disk" / "state.json"
        self.state.parent.mkdir()
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.program = folder / "rendezvous.py"
        shutil.copy(member.__file__, self.program)
        command("ip link add br0 type bridge")
        command("ip link set br0 up")
        for number, name in enumerate(("server", *MEMBERS, "stranger"), 1):
            command(f"ip netns add {name}")
            command(f"ip link add to{number} master br0 type veth peer name eth0 netns {name}")
            command(f"ip link set to{number} up")
            command(f"ip -n {name} link set lo up")
            command(f"ip -n {name} link set eth0 up")
            command(f"ip -n {name} address add {SERVER if number == 1 else f'10.9.0.{10 + number - 1}'}/24 dev eth0")

    def serve(self, *more: str, members: tuple[str, ...] = ("generator", "dut"), secret: str = SECRET) -> Process:
        lab = (sys.executable, "-m", "ringroad_lab.cli.main", "rendezvous", "serve", *members)
        server = Process(self.logs, "server", *lab, "--state", str(self.state), *more, secret=secret)
        await_(lambda: "rendezvous of" in server.output_text() or server.process.poll() is not None, "the server")
        return server

    def member(self, where: str, verb: str, *arguments: str, servers: tuple[str, ...] = (SERVER,), secret: str = SECRET) -> Process:
        at = [f"--server={server}" if ":" in server else f"--server={server}:{PORT}" for server in servers]
        return Process(self.logs, where, sys.executable, "-I", "-S", str(self.program), verb, *at, *arguments, secret=secret)

    def arrive(self, who: str, barrier: int, deadline_s: float = 60, *more: str, **other: Any) -> Process:  # noqa: ANN401
        return self.member(who, "arrive", str(barrier), "--as", who, "--deadline", str(deadline_s), *more, **other)

    def status(self) -> dict[str, Any]:
        query = self.member("generator", "status", "--json")
        query.process.wait(PATIENCE_S)
        found: dict[str, Any] = json.loads(query.output_text())
        return found


def ends(*processes: Process) -> list[Ending]:
    return [process.end() for process in processes]


def pass_two(place: Place) -> dict[str, Any]:
    place.serve(members=MEMBERS)
    # One member uses the laboratory's command, the others the self-contained file.
    lab = (sys.executable, "-m", "ringroad_lab.cli.main", "rendezvous", "arrive", "1", "--as", "generator", "--deadline", "60")
    first = [Process(place.logs, "generator", *lab, "--server", f"{SERVER}:{PORT}"), place.arrive("dut", 1), place.arrive("dut2", 1)]
    found: dict[str, Any] = {"first": ends(*first)}
    found["second"] = ends(*(place.arrive(name, 2) for name in MEMBERS))
    found["again"] = place.arrive("dut", 1).end()
    status = place.member("generator", "status")
    found["status"] = [status.process.wait(PATIENCE_S), status.output_text()]
    return found


def lose_network(place: Place) -> dict[str, Any]:
    server = place.serve()
    dut = place.arrive("dut", 1, 60, servers=(SERVER, SECOND))
    dut.await_output("generator is missing")
    command("ip -n dut link set eth0 down")
    command("ip -n dut address flush dev eth0")
    command(f"ip -n server address del {SERVER}/24 dev eth0")
    # The member fails at both addresses.
    dut.await_output(f"{SERVER}:{PORT}:")
    dut.await_output(f"{SECOND}:{PORT}:")
    command(f"ip -n server address add {SECOND}/24 dev eth0")
    command("ip -n dut address add 10.9.0.12/24 dev eth0")
    command("ip -n dut link set eth0 up")
    listing = ["ip", "netns", "exec", "server", "ss", "-Htn", "state", "established", f"( sport = :{PORT} )"]
    seen: list[str] = []

    def has_reconnected() -> bool:
        connections = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
        seen.extend(word.rpartition(":")[0].removeprefix("[::ffff:").removesuffix("]") for word in connections.split()[3::4])
        return bool(seen)

    await_(has_reconnected, "the member's next request")
    generator = place.arrive("generator", 1, servers=(SECOND,))
    found = ends(dut, generator)
    server.kill()
    return {"came": found, "noticed": True, "from": seen[-1]}


def kill_all(place: Place) -> dict[str, Any]:
    server = place.serve()
    dut = place.arrive("dut", 1, 60, "--boot", "one")
    dut.await_output("generator is missing")
    server.kill()
    dut.await_output("refused")
    server = place.serve()
    # As after a reboot: the member starts again, with another boot id.
    dut.kill()
    dut = place.arrive("dut", 1, 60, "--boot", "two")
    dut.await_output("generator is missing")
    server.kill()
    server = place.serve()
    generator = place.arrive("generator", 1, 60, "--boot", "one")
    found: dict[str, Any] = {"came": ends(dut, generator)}
    server.kill()
    place.serve()
    found["met before a restart"] = place.arrive("dut", 1, 60, "--boot", "two").end()
    found["members"] = place.status()["members"]
    return found


def miss_deadline(place: Place) -> dict[str, Any]:
    server = place.serve()
    generator = place.arrive("generator", 1, 2)
    found: dict[str, Any] = {"waited": generator.end(), "late": place.arrive("dut", 1).end()}
    status = place.member("generator", "status")
    found["status"] = status.end()
    server.kill()
    place.serve()
    return {**found, "after a restart": place.arrive("generator", 1).end()}


def abort(place: Place) -> dict[str, Any]:
    server = place.serve()
    dut = place.arrive("dut", 1)
    dut.await_output("generator is missing")
    found = {"abort": place.member("generator", "abort", "no such card", "--as", "generator").end(), "waited": dut.end()}
    server.kill()
    place.serve()
    found["later"] = place.arrive("dut", 1).end()
    found["second reason"] = place.member("dut", "abort", "something else").end()
    return found


def fall_silent(place: Place) -> dict[str, Any]:
    server = place.serve("--silence", "10")
    dut = place.arrive("dut", 1)
    dut.await_output("generator is missing")
    dut.kill()
    await_(lambda: place.status()["members"]["dut"]["silent_s"] > 10, "silence")
    generator = place.arrive("generator", 1)
    generator.await_output("dut has been silent for")
    found: dict[str, Any] = {"heard again": ends(place.arrive("dut", 1), generator)}
    dut = place.arrive("dut", 2)
    dut.await_output("generator is missing")
    dut.kill()
    await_(lambda: place.status()["members"]["dut"]["silent_s"] > 10, "silence")
    found["gone"] = place.arrive("generator", 2, 1).end()
    server.kill()
    return found


_STRANGER = """
import os, socket, sys
held = []
def connect():
    made = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    held.append(made)
    return made
for _ in range(300):
    connect()
for _ in range(50):
    made = connect()
    try:
        # An endless line.
        while made.send(b"x" * 65536):
            pass
    except OSError:
        pass
for line in (b"\\n", b"{}\\n", b"\\xff\\xfe nonsense \\n", b"a b c\\n" * 100, b"0" * 64 + b" {}\\n"):
    connect().sendall(line)
print("done", flush=True)
sys.stdin.read()
"""


def meet_strangers(place: Place) -> dict[str, Any]:
    server = place.serve()
    watched = psutil.Process(server.process.pid)
    memory = watched.memory_info().rss
    argv = ["ip", "netns", "exec", "stranger", sys.executable, "-c", _STRANGER, SERVER, str(PORT)]
    stranger = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert stranger.stdout
    # One member arrives during the attack, the other when the stranger holds as many connections as it can.
    dut = place.arrive("dut", 1)
    assert stranger.stdout.readline() == b"done\n"
    wrong = place.arrive("dut2", 1, 1, secret="a secret that is wrong")
    descriptors = watched.num_fds()
    found = ends(dut, place.arrive("generator", 1))
    grown = (watched.memory_info().rss - memory) / 2**20
    stranger.kill()
    stranger.wait()
    lines = len(server.output_text().splitlines())
    wrong.process.wait(PATIENCE_S)
    refused = [wrong.process.returncode, wrong.output_text()]
    server.kill()
    return {"came": found, "descriptors": descriptors, "memory_grown_mib": grown, "lines printed": lines, "wrong secret": refused}


def lie(place: Place) -> dict[str, Any]:
    place.serve()
    code = "\n".join(
        [
            "import socket",
            f"from_all = socket.create_server(('', {PORT + 1}))",
            "print('rendezvous of liars', flush=True)",
            "while True:",
            "    made, _ = from_all.accept()",
            f"    made.sendall(b'{member.GREETING}0123\\n')",
            "    made.recv(9000)",
            "    made.sendall(b'0' * 64 + b' {\"state\": \"met\"}\\n')",
        ]
    )
    liar = Process(place.logs, "stranger", sys.executable, "-c", code)
    liar.await_output("liars")
    deceived = place.arrive("dut", 1, 1, servers=(f"10.9.0.14:{PORT + 1}",))
    deceived.process.wait(PATIENCE_S)
    found: dict[str, Any] = {"liar": [deceived.process.returncode, deceived.output_text()]}
    # Like a machine that lost power: connections are accepted but never answered.
    silent = Process(
        place.logs, "stranger", sys.executable, "-c", f"import socket, time; s = socket.create_server(('', {PORT + 2})); time.sleep(600)"
    )
    dut = place.arrive("dut", 1, servers=(f"10.9.0.14:{PORT + 2}", SERVER))
    found["silent, then the real one"] = ends(dut, place.arrive("generator", 1))
    silent.kill()
    liar.kill()
    return found


def fill_disk(place: Place) -> dict[str, Any]:
    command(f"mount -t tmpfs -o size=64k none {place.state.parent}")
    server = place.serve()
    with (place.state.parent / "filler").open("wb", buffering=0) as filler:
        try:
            while filler.write(b"x" * 4096):
                pass
        except OSError:
            pass
    dut = place.arrive("dut", 1)
    server.await_output("the state cannot be saved")
    dut.await_output("closed the connection")
    is_known = place.status()["members"]["dut"]["arrived"] == 0
    (place.state.parent / "filler").unlink()
    found = ends(dut, place.arrive("generator", 1))
    return {"while full": is_known, "reports": server.output_text().count("the state cannot be saved"), "came": found}


def misuse(place: Place) -> dict[str, Any]:
    server = place.serve()
    found = {
        "out of step": place.arrive("dut", 2).end(),
        "stranger's role": place.member("dut", "arrive", "1", "--as", "guest", "--deadline", "60").end(),
        "short secret": place.arrive("dut", 1, secret="short").end(),
        "no deadline": place.arrive("dut", 1, 0).end(),
    }
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(PATIENCE_S) == 0, server.output_text()
    found["state of others"] = place.serve(members=("generator", "guest")).end()
    found["state of another"] = place.serve(secret="a secret that is wrong").end()
    return found


PARTS: dict[str, Callable[[Place], dict[str, Any]]] = {
    "pass": pass_two,
    "network": lose_network,
    "kill": kill_all,
    "deadline": miss_deadline,
    "abort": abort,
    "silence": fall_silent,
    "strangers": meet_strangers,
    "lies": lie,
    "full": fill_disk,
    "usage": misuse,
}


def check(part: str) -> dict[str, Any]:
    socket.setdefaulttimeout(PATIENCE_S)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        return PARTS[part](Place(Path(name)))


if __name__ == "__main__":
    answer(check)
