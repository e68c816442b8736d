"""The tmt engine in a sandbox: the real tmt, and a generator and a device's machine, each an sshd in its own namespaces.

Each machine has its own network and its own job folders, so only tmt transfers files.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from processes import is_running
from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import LabError
from ringroad_lab.fleet.engine.interface import EngineSettings, Job, JobState
from ringroad_lab.fleet.engine.tmt import TmtEngine
from ringroad_lab.fleet.engine.tmt_plan import TmtSettings
from ringroad_lab.fleet.engine.tmt_process import JobFiles, find_process
from ringroad_lab.fleet.inventory import BedSettings
from ringroad_lab.rendezvous import member
from ringroad_lab.store.result_store import ResultStore
from sandboxed import answer

PATIENCE_S = 400.0
GENERATOR, DUT, PORT = "10.8.0.1", "10.8.0.2", 2222
# Polls the SSH connection every 0.1 s instead of 30 s; tmt has no setting for this.
QUICK_TMT = """\
import sys
import tmt.guest
from tmt.utils.wait import Deadline, Waiting
tmt.guest.default_ssh_master_start_waiting = lambda: Waiting(deadline=Deadline.from_seconds(120), tick=0.1)
from tmt.__main__ import run_cli
sys.exit(run_cli())
"""


LAB = (sys.executable, "-m", "ringroad_lab.cli.main")
SERVE = """\
setsid $LAB rendezvous serve generator dut --state /run/of-tmt/rendezvous.json </dev/null >/run/of-tmt/rendezvous.log 2>&1 &
echo $! >/run/of-tmt/rendezvous.pid
"""
END_SERVER = "cat /run/of-tmt/rendezvous.log; kill $(cat /run/of-tmt/rendezvous.pid)"
# The device's machine loses its network before the second barrier, and gets it back after a failed request.
MEET = """\
. "$TMT_TOPOLOGY_BASH"
role=${TMT_GUEST[role]}
arrive() { python3 rendezvous.py arrive "$1" --as "$role" --deadline 200; }
arrive 1 || exit
if [ "$role" = dut ]; then
  ip link set eth0 down
  arrive 2 2>missed &
  until [ -s missed ]; do sleep 0.1; done
  ip link set eth0 up
  wait %1
else
  arrive 2
fi
"""


def command(text: str) -> None:
    subprocess.run(text.split(), check=True, stdout=subprocess.DEVNULL)


def link_programs(folder: Path) -> None:
    """Make a folder with the programs of a Debian machine, without other package managers, which tmt would prefer."""
    folder.mkdir()
    others = ("dnf", "dnf5", "yum", "microdnf", "bootc")
    for path in ("/usr/bin", "/usr/sbin", "/bin", "/sbin"):
        for program in Path(path).iterdir():
            if program.name not in others and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)


class Place:
    """The machines, and the engine that uses them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs = folder / "jobs"
        self.jobs.mkdir()
        self.store = str(folder / "results.db")
        ResultStore(self.store).close()
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
        (folder / "authorized").write_text((folder / "user.pub").read_text())
        key = (folder / "host.pub").read_text()
        (folder / "known").write_text("".join(f"[{address}]:{PORT} {key}" for address in (GENERATOR, DUT)))
        command("ip link add br0 type bridge")
        command("ip link set br0 up")
        command("ip address add 10.8.0.254/24 dev br0")
        self.machines: dict[str, int] = {}
        self.programs = folder / "programs"
        link_programs(self.programs)
        for name, address in (("generator", GENERATOR), ("dut", DUT)):
            self.start_machine(name, address)
        tmt = folder / "tmt"
        tmt.write_text(f"#!{os.environ['RINGROAD_TMT']}/bin/python\n{QUICK_TMT}")
        lab = folder / "lab"
        lab.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).parent}/tmt_fabricated_lab.py "$@"\n')
        for program in (tmt, lab):
            program.chmod(0o755)
        self.tmt = str(tmt)
        self.settings = TmtSettings(
            program=self.tmt, port=PORT, key_file=str(folder / "user"), known_hosts_file=str(folder / "known"), lab=str(lab)
        )
        self.beds = {"bed-a": BedSettings(machines={"generator": GENERATOR, "dut": DUT})}
        os.environ.update(TMT_CONFIG_DIR=str(folder / "config"), TMT_WORKDIR_ROOT=str(folder / "jobs" / "workdirs"), NO_COLOR="1")
        os.environ["TMT_SCRIPTS_DIR"] = os.environ["TMT_TEST_PIDFILE_ROOT"] = "/run/of-tmt"

    def start_machine(self, name: str, address: str) -> None:
        command(f"ip netns add {name}")
        command(f"ip link add to-{name} master br0 type veth peer name eth0 netns {name}")
        command(f"ip link set to-{name} up")
        command(f"ip -n {name} link set lo up")
        command(f"ip -n {name} link set eth0 up")
        command(f"ip -n {name} address add {address}/24 dev eth0")
        home = self.home(name)
        home.mkdir()
        variables = {
            "PATH": self.programs,
            "HOME": home,
            "SHLVL": 2,
            "FABRICATED_FOLDER": self.folder,
            "PYTHONPATH": os.environ["PYTHONPATH"],
        }
        config = self.folder / f"{name}.config"
        config.write_text(
            f"ListenAddress {address}\nPort {PORT}\nHostKey {self.folder}/host\nStrictModes no\nUsePAM no\nPidFile none\n"
            f"AuthorizedKeysFile {self.folder}/authorized {home}/.ssh/authorized_keys\nPermitRootLogin yes\nPasswordAuthentication no\n"
            f"MaxStartups 50\nSetEnv {' '.join(f'{name}={value}' for name, value in variables.items())}\n"
        )
        own = ["/run/ringroad-lab-tmt", "/run/of-tmt", str(self.jobs)]
        for path in ("/run/sshd", "/run/lock", *own):
            Path(path).mkdir(parents=True, exist_ok=True)
        begin = " && ".join([*(f"mount -t tmpfs none {path}" for path in own), f"exec /usr/sbin/sshd -D -f {config}"])
        server = subprocess.Popen(["ip", "netns", "exec", name, "sh", "-c", begin], stdin=subprocess.DEVNULL, stdout=sys.stderr)
        self.machines[name] = server.pid
        query = ["ip", "netns", "exec", name, "ss", "--no-header", "-ltn", f"sport = :{PORT}"]
        assert wait_until(lambda: bool(subprocess.run(query, capture_output=True, check=True).stdout), 10)

    def home(self, machine: str) -> Path:
        return self.folder / f"home-of-{machine}"

    def engine(self) -> TmtEngine:
        """Return an engine as a dispatcher creates it."""
        return TmtEngine(EngineSettings(store=self.store, folder=self.jobs, own=self.settings))

    def job(self, *arguments: str, name: str = "") -> Job:
        return Job(name or str(uuid.uuid4()), arguments or ("run", "BRIDGE_VETH", "--label=build=it's 3.5"), self.beds)

    def await_begun(self, engine: TmtEngine, key: str) -> dict[str, Any]:
        began = self.folder / "began"
        wait_until(lambda: began.exists() or engine.state(key).state is JobState.ENDED, PATIENCE_S)
        assert began.exists(), self.log(key)
        report: dict[str, Any] = json.loads(began.read_text())
        began.unlink()
        return report

    def await_end(self, engine: TmtEngine, key: str) -> Any:  # noqa: ANN401
        assert wait_until(lambda: engine.state(key).state is JobState.ENDED, PATIENCE_S, 0.1), self.log(key)
        return engine.state(key)

    def log(self, key: str) -> str:
        return (self.jobs / "tmt" / key.rpartition("/")[2] / "tmt.log").read_text()

    def go(self) -> None:
        (self.folder / "go").touch()

    def left(self) -> dict[str, Any]:
        """Return the remains of ended jobs."""
        keys = self.home("dut") / ".ssh" / "authorized_keys"
        secrets = [path.name for name in ("job.key", "job.environment") for path in self.jobs.rglob(name)]
        for pid in self.machines.values():
            find = ["find", str(self.jobs), "/run/ringroad-lab-tmt", "-name", "job.*", "!", "-name", "job.pub"]
            done = subprocess.run(["nsenter", f"--mount=/proc/{pid}/ns/mnt", *find], capture_output=True, text=True, check=False)
            secrets += done.stdout.split()
        processes = [
            " ".join(line) for each in psutil.process_iter(["cmdline"]) if str(self.jobs) in " ".join(line := each.info["cmdline"] or [])
        ]
        return {"keys": keys.read_text() if keys.exists() else "", "secrets": secrets, "processes": processes}


SUBMIT = """
import json, os, signal, sys
from pathlib import Path
from ringroad_lab.fleet.engine.interface import EngineSettings, Job
from ringroad_lab.fleet.engine.tmt import TmtEngine
from ringroad_lab.fleet.engine.tmt_plan import TmtSettings
from ringroad_lab.fleet.inventory import BedSettings
submission = json.load(sys.stdin)
beds = {"bed-a": BedSettings.model_validate(submission["bed"])}
engine = TmtEngine(EngineSettings(submission["store"], Path(submission["folder"]), own=TmtSettings.model_validate(submission["own"])))
engine.submit(Job(submission["name"], tuple(submission["arguments"]), beds))
os.kill(os.getpid(), signal.SIGKILL)
"""


def run(place: Place) -> dict[str, Any]:
    """A job of a killed dispatcher, which another dispatcher takes over."""
    job = place.job()
    submission = {"bed": place.beds["bed-a"].model_dump(by_alias=True), "store": place.store, "folder": str(place.jobs), "name": job.name}
    submission |= {"own": place.settings.model_dump(), "arguments": job.arguments}
    first = subprocess.run([sys.executable, "-c", SUBMIT], input=json.dumps(submission), text=True, check=False)
    engine = place.engine()
    key = engine.find(job.name)
    assert key, first
    began = place.await_begun(engine, key)
    found: dict[str, Any] = {"killed": first.returncode, "began": began, "state": engine.state(key).state}
    found["again"] = engine.submit(job) == key
    found["busy"] = error_of(lambda: engine.submit(place.job()))
    place.go()
    report = place.await_end(engine, key)
    folder = place.jobs / "tmt" / job.name
    (results,) = folder.glob("run/plan/execute/results.yaml")
    lint = subprocess.run([place.tmt, "--root", str(folder / "tree"), "lint"], capture_output=True, text=True, check=False)
    with ResultStore(place.store) as store:
        found["measurements"] = len(store.get_run(job.name).measurements)
    return {
        **found,
        "job": job.name,
        "status": report.exit_status,
        "output": report.output,
        "tmt": place.log(key),
        "results": results.read_text(),
        "lint": [lint.returncode, lint.stdout],
        "left": place.left(),
        "found when ended": engine.find(job.name),
    }


def cancel(place: Place) -> dict[str, Any]:
    """A cancelled job."""
    engine, job = place.engine(), place.job()
    key = engine.submit(job)
    place.await_begun(engine, key)
    engine.cancel(key)
    report = place.await_end(engine, key)
    with ResultStore(place.store) as store:
        state = store.get_run(job.name).state
    return {"status": report.exit_status, "output": report.output, "run": state, "left": place.left(), "tmt": place.log(key)}


def force(place: Place) -> dict[str, Any]:
    """A job whose trial takes so long that tmt is ended."""
    (place.folder / "long-trial").touch()
    engine, job = place.engine(), place.job()
    key = engine.submit(job)
    pid = place.await_begun(engine, key)["pid"]
    engine.cancel(key)
    marker = ["nsenter", f"--mount=/proc/{place.machines['generator']}/ns/mnt", "test", "-e", f"/run/ringroad-lab-tmt/{job.name}/told"]
    assert wait_until(lambda: subprocess.run(marker, check=False).returncode == 0, PATIENCE_S, 0.1)
    process = find_process(JobFiles(place.jobs / "tmt" / job.name))
    assert process
    # The engine sends this signal after two minutes.
    os.kill(process, signal.SIGTERM)
    report = place.await_end(engine, key)
    return {"status": report.exit_status, "is running": is_running(pid), "left": place.left(), "tmt": place.log(key)}


def kill(place: Place) -> dict[str, Any]:
    """A job whose process here is killed; the next job ends its processes on the generator, and resumes the run."""
    engine, job = place.engine(), place.job()
    key = engine.submit(job)
    pid = place.await_begun(engine, key)["pid"]
    recorded = json.loads((place.jobs / "tmt" / job.name / "process.json").read_text())
    psutil.Process(recorded["pid"]).kill()
    report = place.await_end(engine, key)
    found: dict[str, Any] = {"status": report.exit_status, "processes": place.left()["processes"]}
    key = engine.submit(place.job("resume", job.name, name=job.name))
    again = place.await_begun(engine, key)
    found["is the first running"] = is_running(pid)
    found["again"] = again["arguments"]
    place.go()
    report = place.await_end(engine, key)
    with ResultStore(place.store) as store:
        found["measurements"] = len(store.get_run(job.name).measurements)
    return {**found, "resumed": report.exit_status, "left": place.left(), "tmt": place.log(key)}


def refuse(place: Place) -> dict[str, Any]:
    """Jobs that cannot start."""
    unknown = place.settings.model_copy(update={"known_hosts_file": str(place.folder / "authorized")})
    missing = place.settings.model_copy(update={"program": "no-such-tmt"})

    def submit(settings: TmtSettings, job: Job) -> str:
        return error_of(lambda: TmtEngine(EngineSettings(store=None, folder=place.jobs, own=settings)).submit(job))

    return {
        "unknown": submit(unknown, place.job()),
        "missing": submit(missing, place.job()),
        "no bed": submit(place.settings, Job(str(uuid.uuid4()), ("run", "BRIDGE_VETH"))),
    }


def error_of(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except LabError as error:
        return str(error)
    return ""


# The network cards of both machines are veth pairs here; the load is low enough for them.
MEASURED = (
    "frames=[64]",
    "repetitions=1",
    'physical="nic"',
    "link_bps=10e6",
    "private=false",
    "huge_pages=false",
    'dut.linux-bridge.host="dut"',
    'host.dut.nics=[{generator_interface="near1", dut_interface="far1"}, {generator_interface="near2", dut_interface="far2"}]',
)


def measure(place: Place) -> dict[str, Any]:
    """The real laboratory on the generator measures a bridge on the device's machine."""
    for number in (1, 2):
        command(f"ip -n generator link add near{number} type veth peer name far{number} netns dut")
        command(f"ip -n generator link set near{number} up")
        command(f"ip -n dut link set far{number} up")
    lab = place.folder / "lab"
    lab.write_text(f'#!/bin/sh\nRINGROAD_BIN_DIR={os.environ["RINGROAD_BIN_DIR"]} exec {" ".join(LAB)} "$@"\n')
    engine = place.engine()
    job = place.job("run", "BRIDGE_VETH", "--layer=quick", *(f"--set={setting}" for setting in MEASURED))
    key = engine.submit(job)
    report = place.await_end(engine, key)
    found: dict[str, Any] = {"status": report.exit_status, "output": report.output, "tmt": place.log(key)}
    if report.exit_status != 0:
        return found
    results = (place.jobs / "tmt" / job.name / "run/plan/execute/results.yaml").read_text()
    with ResultStore(place.store) as store:
        record = store.get_run(job.name)
    measured = [[m.dut, m.outcome.status, m.outcome.headline] for m in record.measurements]
    return {**found, "results": results, "state": record.state, "measured": measured, "left": place.left()}


def meet(place: Place) -> dict[str, Any]:
    """A tmt test of any user, in parallel on both machines, whose parts meet at a rendezvous."""
    tree = place.folder / "tree"
    (tree / ".fmf").mkdir(parents=True)
    (tree / ".fmf" / "version").write_text("1\n")
    shutil.copy(member.__file__, tree / "rendezvous.py")
    (tree / "meet.sh").write_text(MEET)
    servers = {member.SERVERS_VARIABLE: GENERATOR, member.SECRET_VARIABLE: "a secret of the tests", "LAB": " ".join(LAB)}
    key, options = str(place.folder / "user"), {"user": "root", "port": PORT}
    machines = place.beds["bed-a"].machines.items()
    provision = [{"name": role, "role": role, "how": "connect", "guest": address, "key": key, **options} for role, address in machines]
    phase = {"how": "shell", "where": ["generator"]}
    plan = {"provision": provision, "discover": {"how": "fmf"}, "execute": {"how": "tmt"}, "environment": servers}
    plan |= {"prepare": [{**phase, "script": SERVE}], "finish": [{**phase, "script": END_SERVER}]}
    test = {"test": "bash ./meet.sh", "framework": "shell", "duration": "5m"}
    (tree / "main.fmf").write_text(json.dumps({"/plan": plan, "/meet": test}))
    run = place.jobs / "meet"
    command = [place.tmt, "--root", str(tree), "run", "--id", str(run), "--all"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    outputs = {path.parts[-3].partition("-")[0]: path.read_text() for path in run.glob("plan/execute/data/guest/*/meet-1/output.txt")}
    return {"status": done.returncode, "tmt": done.stderr, "outputs": outputs}


PARTS = {"force": force, "measure": measure, "meet": meet, "run": run, "cancel": cancel, "kill": kill, "refuse": refuse}


def check(part: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        return PARTS[part](Place(Path(name)))


if __name__ == "__main__":
    answer(check)
