"""Runs the Beaker task on two machines in a sandbox: a generator, and in another network namespace a device with its own sshd.

This module replaces the harness: it sets the task parameters, from the engine's own job XML, and Beaker's variables in the environment.
Restraint's programs are stand-ins. Writes the result as one line of JSON.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from processes import kill_tree
from ringroad_lab.deadline import wait_until
from ringroad_lab.fleet.engine.beaker.job_xml import job_xml
from ringroad_lab.fleet.engine.beaker.settings import BeakerSettings
from ringroad_lab.fleet.engine.interface import Job
from ringroad_lab.fleet.inventory import BedSettings
from ringroad_lab.record import RunRecord
from ringroad_lab.store.result_store import ResultStore
from sandboxed import answer

GENERATOR, DUT, NETNS = "192.0.2.1", "192.0.2.2", "far"
HERE = Path(__file__).parent
TASK = HERE.parents[1] / "beaker" / "measure"
RUN = "11111111-2222-3333-4444-555555555555"
SCENARIO = """
duts = ["linux-bridge"]
topologies = ["P2P"]
physical = "nic"
private = false
link_bps = 1_000_000
methods = ["throughput"]
frames = [64]
repetitions = 1
method.throughput = {warm_up_s = 0.1, search_s = 0.1, validation_s = 0.2, resolution = 0.4}

[dut.linux-bridge]
host = "dut"

[[host.dut.nics]]
generator_interface = "near1"
dut_interface = "far1"

[[host.dut.nics]]
generator_interface = "near2"
dut_interface = "far2"
"""
PATIENCE_S = 300.0


def command(text: str) -> None:
    subprocess.run(text.split(), check=True, stdout=subprocess.DEVNULL)


def build(folder: Path) -> None:
    """Create the device's machine: an address, a path for frames in each direction, and an sshd without any known key."""
    command(f"ip netns add {NETNS}")
    for number in range(3):
        command(f"ip link add near{number} type veth peer name far{number} netns {NETNS}")
        command(f"ip link set near{number} up")
        command(f"ip -n {NETNS} link set far{number} up")
    command("ip link set lo up")
    command(f"ip -n {NETNS} link set lo up")
    command(f"ip address add {GENERATOR}/24 dev near0")
    command(f"ip -n {NETNS} address add {DUT}/24 dev far0")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host")], check=True)
    (folder / "authorized_keys").write_text("ssh-ed25519 AAAA somebody else\n")
    (folder / "config").write_text(
        f"ListenAddress {DUT}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nUsePAM no\n"
        "PidFile none\nPermitRootLogin yes\nPasswordAuthentication no\nSetEnv SHLVL=2\n"
    )
    Path("/run/sshd").mkdir(parents=True, exist_ok=True)
    server = ["ip", "netns", "exec", NETNS, "/usr/sbin/sshd", "-D", "-f", str(folder / "config")]
    subprocess.Popen(server, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    query = ["ip", "netns", "exec", NETNS, "ss", "--no-header", "-ltn", "sport = :22"]
    assert wait_until(lambda: bool(subprocess.run(query, capture_output=True, check=True).stdout), 10)
    programs = folder / "programs"
    programs.mkdir()
    for name in ("rstrnt-report-result", "rstrnt-report-log"):
        (programs / name).symlink_to(HERE / "stand_in_rstrnt.sh")
    (programs / "ringroad-lab").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m ringroad_lab.cli.main "$@"\n')
    (programs / "ringroad-lab").chmod(0o755)
    (folder / "scenario.toml").write_text(SCENARIO)


def job_params(folder: Path, role: str, arguments: tuple[str, ...], meet_within_s: int) -> dict[str, str]:
    """Return the parameters of our task in the recipe of a role, as written by the engine."""
    values = {"hub": "http://hub.example", "user": "lab", "password_env": "X", "task": "https://example.org/x", "recipe": {"distro": "x"}}
    own = BeakerSettings.model_validate({**values, "meet_within_s": meet_within_s, "max_time_s": 120})
    xml = folder / "job.xml"
    if not xml.exists():
        bed = BedSettings.model_validate({"machines": {"generator": GENERATOR, "dut": DUT}})
        xml.write_text(job_xml(own, Job(RUN, arguments, {"bed-1": bed}), "bed-1", bed.machines))
    for recipe in ElementTree.fromstring(xml.read_text()).iter("recipe"):
        if recipe.get("role") == role.upper():
            return {param.get("name", ""): param.get("value", "") for param in recipe.iter("param")}
    raise AssertionError(role)


class Machines:
    """Both machines, each with the task."""

    def __init__(self, folder: Path, arguments: tuple[str, ...], meet_within_s: int = 60) -> None:
        self.folder = folder
        self.arguments = arguments
        self.meet_within_s = meet_within_s
        self.results = folder / "results"
        self.store = folder / "results.db"

    def start(self, role: str, **more: str) -> subprocess.Popen[bytes]:
        params = job_params(self.folder, role, self.arguments, self.meet_within_s)
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RINGROAD_LAB_")},
            **{name: os.environ[name] for name in ("RINGROAD_LAB_LOCK",) if name in os.environ},
            **params,
            **dict.fromkeys(("JOBID", "RECIPESETID", "RECIPEID", "TASKID", "TESTORDER"), "1"),
            "RECIPETYPE": "machine",
            **{"RECIPE_MEMBERS": f"{GENERATOR} {DUT}", "JOB_MEMBERS": f"{GENERATOR} {DUT}", "GENERATOR": GENERATOR, "DUT": DUT},
            **{"ROLE": role.upper(), "RECIPE_ROLE": role.upper(), "REBOOTCOUNT": "0", "RSTRNT_TASKNAME": "/ringroad/measure"},
            **{"HOSTNAME": GENERATOR if role == "generator" else DUT, "HOME": str(self.folder)},
            "PATH": f"{self.folder / 'programs'}:{os.environ['PATH']}",
            "STAND_IN_RESULTS": str(self.results),
            "RINGROAD_LAB_STORE": str(self.store),
            "RINGROAD_LAB_AUTHORIZED_KEYS": str(self.folder / "authorized_keys"),
            "RINGROAD_LAB_MEETING_STATE": str(self.folder / "meeting"),
            "RINGROAD_LAB_ENVIRONMENT": "/nonexistent",
            **more,
        }
        where = ["ip", "netns", "exec", NETNS] if role == "dut" else []
        log = (self.folder / f"{role}.log").open("ab")
        return subprocess.Popen([*where, str(TASK / "runtest.sh")], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def result(self, *processes: subprocess.Popen[bytes]) -> dict[str, Any]:
        """Wait for the tasks to end; return their reports and remains."""
        ended = time.monotonic() + PATIENCE_S
        statuses: list[int | None] = []
        for process in processes:
            try:
                statuses.append(process.wait(max(0.1, ended - time.monotonic())))
            except subprocess.TimeoutExpired:
                process.kill()
                statuses.append(None)
        log = Path(f"{self.results}.ringroad-lab.log")
        return {
            "statuses": statuses,
            "results": sorted(self.results.read_text().splitlines()) if self.results.exists() else [],
            "log": log.read_text() if log.exists() else "",
            "authorized": (self.folder / "authorized_keys").read_text(),
            "fleet": (self.folder / ".config" / "ringroad-lab" / "fleet.toml").exists(),
            "left": sorted(path.name for path in Path(tempfile.gettempdir()).glob("tmp.*")),
            "generator": _text(self.folder / "generator.log"),
            "dut": _text(self.folder / "dut.log"),
            "run": self._run(),
        }

    def _run(self) -> dict[str, Any] | None:
        if not self.store.exists():
            return None
        with ResultStore(str(self.store)) as store:
            if not store.count():
                return None
            record: RunRecord = store.get_run(RUN)
            return {"state": record.state, "failure": record.failure, "measurements": [m.outcome.status for m in record.measurements]}


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def measured(folder: Path) -> dict[str, Any]:
    machines = Machines(folder, ("run", str(folder / "scenario.toml"), '--label=note=it\'s "a" b'))
    # The device's machine is ready first and waits.
    dut = machines.start("dut")
    assert wait_until(lambda: f"{GENERATOR}:6778" in _text(folder / "dut.log"), 20)
    return machines.result(machines.start("generator"), dut)


def failed(folder: Path) -> dict[str, Any]:
    machines = Machines(folder, ("run", "NO_SUCH_SCENARIO"))
    return machines.result(machines.start("generator"), machines.start("dut"))


def alone(folder: Path) -> dict[str, Any]:
    """The device's machine never arrives."""
    machines = Machines(folder, ("run", str(folder / "scenario.toml")), meet_within_s=10)
    return machines.result(machines.start("generator"))


def restarted(folder: Path) -> dict[str, Any]:
    """The generator's machine restarts while it measures; the device waits at the barrier."""
    machines = Machines(folder, ("run", str(folder / "scenario.toml"), "--set=method.throughput.validation_s=60"))
    generator, dut = machines.start("generator"), machines.start("dut")
    assert wait_until(lambda: machines.store.exists() and "barrier 2" in _text(folder / "dut.log"), PATIENCE_S), _text(folder / "dut.log")
    # As after a power failure: no process can clean up.
    kill_tree(generator.pid)
    generator.wait()
    return machines.result(machines.start("generator", REBOOTCOUNT="1"), dut)


def cancelled(folder: Path) -> dict[str, Any]:
    """The harness ends the generator's task."""
    machines = Machines(folder, ("run", str(folder / "scenario.toml"), "--set=method.throughput.validation_s=60"))
    generator, dut = machines.start("generator"), machines.start("dut")
    assert wait_until(lambda: machines.store.exists() and "barrier 2" in _text(folder / "dut.log"), PATIENCE_S), _text(folder / "dut.log")
    generator.send_signal(signal.SIGTERM)
    return machines.result(generator, dut)


def stranger(folder: Path) -> dict[str, Any]:
    """A client without the job's secret offers its own key."""
    (folder / "key.pub").write_text("ssh-ed25519 AAAA the stranger's\n")
    (folder / "program").write_text("raise SystemExit(0)\n")
    env = {**os.environ, "RINGROAD_LAB_RENDEZVOUS_SECRET": "x" * 32}
    argv = [sys.executable, str(TASK / "handover.py"), "offer", "6778", str(folder / "key.pub"), str(folder / "program")]
    server = subprocess.Popen(argv, env=env)
    try:
        machines = Machines(folder, ("run", str(folder / "scenario.toml")), meet_within_s=10)
        return machines.result(machines.start("dut"))
    finally:
        server.kill()
        server.wait()


CHECKS = {"measured": measured, "failed": failed, "alone": alone, "restarted": restarted, "cancelled": cancelled, "stranger": stranger}


def check(part: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="beaker-") as name:
        folder = Path(name)
        build(folder)
        try:
            return CHECKS[part](folder)
        finally:
            shutil.rmtree(folder / "programs")


if __name__ == "__main__":
    answer(check)
