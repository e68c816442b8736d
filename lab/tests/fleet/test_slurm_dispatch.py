"""From a request to its verdict with a real Slurm and fabricated jobs; tests kill the dispatcher, slurmd, slurmctld and the run."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import PATIENCE_S, SlurmCluster, is_installed

from ringroad_lab.deadline import wait_until
from ringroad_lab.fleet.engine.slurm_settings import SlurmSettings
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.record import RunState
from ringroad_lab.request.message import Message
from ringroad_lab.request.model import Order, RequestState, Wanted
from ringroad_lab.request.table import Request
from ringroad_lab.store.queries import RunFilter
from ringroad_lab.store.result_store import ResultStore

pytestmark = pytest.mark.skipif(not is_installed(), reason="Slurm is not installed (slurmctld, slurmd, slurm-client)")

RUN_PATIENCE_S = 240.0
QUICK = ("frames = [64]", "repetitions = 1", "method.throughput.resolution = 0.4")
HERE = Path(__file__).parent


class Bench:
    """A store with a request, a cluster, and dispatchers."""

    def __init__(self, cluster: SlurmCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.location = str(folder / "results.db")
        self.store = ResultStore(self.location)
        self.requests = Requests(self.store)
        self.request_run()
        self.dispatchers: list[subprocess.Popen[str]] = []
        path = os.pathsep.join([*map(str, (HERE.parent, HERE)), *sys.path])
        self.env = {**cluster.environment(), "PYTHONPATH": path}
        values = {"PYTHONPATH": path, "FABRICATED_FOLDER": str(folder)}
        values |= {name: os.environ[name] for name in ("RINGROAD_BIN_DIR", "RINGROAD_KERNEL_DIR") if name in os.environ}
        lines = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
        # One lock per node, as if each node was a machine.
        lines.append(f'RINGROAD_LAB_LOCK={shlex.quote(str(folder))}/lock-"$SLURMD_NODENAME"')
        (folder / "environment").write_text("\n".join(lines) + "\n")
        self.settings = SlurmSettings(
            config=str(cluster.config),
            folder=str(folder / "jobs"),
            environment_file=str(folder / "environment"),
            program=(sys.executable, str(HERE / "fabricated_job.py")),
            bed_patience_s=0.0,
        )

    def request_run(self, **values: Any) -> None:  # noqa: ANN401
        self.requests.add(
            Message("koji", b"{}", 0.0), [Wanted(**{"build": "ovs-3.5", "scenario": "BRIDGE_VETH", "built_at": 0.0, **values})]
        )

    def dispatch(self) -> subprocess.Popen[str]:
        argv = [sys.executable, str(HERE / "dispatch_fabricated.py"), self.location, str(self.folder), self.settings.model_dump_json()]
        process = subprocess.Popen(argv, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.dispatchers.append(process)
        return process

    @property
    def request(self) -> Request:
        (request,) = self.requests.find()
        return request

    def run_pid(self) -> int:
        file = self.folder / str(self.request.run_id)
        return int(file.read_text() or 0) if file.exists() else 0

    def await_run(self, other_than: int = 0) -> int:
        """Wait until a run has done half of its measurements; return its PID."""
        assert wait_until(lambda: self.run_pid() not in (0, other_than), PATIENCE_S), self.said()
        return self.run_pid()

    def node(self) -> str:
        """Return the node on which the job of the request runs."""
        return self.cluster.call("squeue", "--noheader", "--states=RUNNING", "--format=%B").strip()

    def said(self) -> str:
        for process in self.dispatchers:
            process.kill()
        logs = "".join(path.read_text() for path in (self.folder / "jobs").glob("*.log"))
        return "".join(process.communicate()[0] for process in self.dispatchers) + logs + self.cluster.said()

    def go(self) -> None:
        (self.folder / "go").touch()

    def check_done(self, dispatcher: subprocess.Popen[str], runs: int = 1) -> None:
        """Wait for the end; check for one finished run, one verdict and no remaining job."""
        assert dispatcher.wait(PATIENCE_S) == 0, self.said()
        request = self.request
        assert (request.state, request.verdict, request.lease_holder) == (RequestState.DONE, "measured", "")
        assert (self.store.count(RunFilter(state=RunState.FINISHED)), self.store.count()) == (1, runs)
        assert len(self.store.get_run(str(request.run_id)).measurements) == 6
        changes = [change.new for change in self.requests.changes(request.id) if change.old != change.new]
        assert changes.count("done") == 1
        assert wait_until(lambda: self.cluster.call("squeue", "--noheader") == "", PATIENCE_S)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with SlurmCluster() as cluster:
        made = Bench(cluster, tmp_path)
        yield made
        made.said()
        made.store.close()


def test_a_request_becomes_a_job_a_run_and_a_verdict(bench: Bench) -> None:
    bench.go()
    bench.check_done(bench.dispatch())
    assert bench.request.attempts == 1
    assert bench.request.engine == "slurm"


def test_the_job_of_a_killed_dispatcher_continues_and_another_finds_it_by_its_name(bench: Bench) -> None:
    first = bench.dispatch()
    pid = bench.await_run()
    first.kill()
    first.wait()
    # A dispatcher that is ended properly leaves the job running, too.
    second = bench.dispatch()
    assert wait_until(lambda: any("taken over" in change.why for change in bench.requests.changes(1)), PATIENCE_S)
    second.send_signal(signal.SIGTERM)
    assert second.wait(PATIENCE_S) == 0, bench.said()
    third = bench.dispatch()
    bench.go()
    bench.check_done(third)
    assert (bench.run_pid(), bench.request.attempts) == (pid, 1)


def test_a_killed_run_is_resumed(bench: Bench) -> None:
    dispatcher = bench.dispatch()
    pid = bench.await_run()
    os.kill(pid, signal.SIGKILL)
    bench.await_run(pid)
    bench.go()
    bench.check_done(dispatcher)
    assert bench.request.attempts == 2


def test_a_job_that_vanishes_with_slurmctld_is_submitted_again_without_counting_an_attempt(bench: Bench) -> None:
    bench.cluster.call("scontrol", "update", "PartitionName=lab", "State=DOWN")
    dispatcher = bench.dispatch()
    assert wait_until(lambda: bench.cluster.call("squeue", "--noheader") != "", PATIENCE_S), bench.said()
    bench.cluster.kill("slurmctld")
    for file in (bench.cluster.folder / "state").glob("job_state*"):
        file.unlink()
    bench.cluster.start_controller()
    bench.cluster.call("scontrol", "update", "PartitionName=lab", "State=UP")
    bench.go()
    bench.check_done(dispatcher)
    assert bench.request.attempts == 1
    assert any("no trace" in change.why for change in bench.requests.changes(1))


def test_a_slurmctld_that_is_down_causes_delays_but_no_loss(bench: Bench) -> None:
    bench.cluster.kill("slurmctld")
    dispatcher = bench.dispatch()
    assert _await_output(dispatcher, "Slurm: squeue failed")
    assert bench.request.state is RequestState.NEW
    bench.cluster.start_controller()
    pid = bench.await_run()
    bench.cluster.kill("slurmctld")
    bench.go()
    assert _await_output(dispatcher, "Slurm: squeue failed")
    bench.cluster.start_controller()
    bench.check_done(dispatcher)
    assert (bench.run_pid(), bench.request.attempts) == (pid, 1)


def test_after_the_loss_of_a_machine_the_build_is_measured_again_on_another(bench: Bench) -> None:
    dispatcher = bench.dispatch()
    pid = bench.await_run()
    lost = bench.node()
    bench.cluster.lose(lost)
    os.kill(pid, signal.SIGSTOP)
    # The first copy did not end, but the engine does not query its machine any more.
    bench.await_run(pid)
    assert bench.node() != lost
    bench.go()
    bench.check_done(dispatcher, runs=2)
    assert bench.request.attempts == 2


def test_a_cancelled_request_ends_its_job(bench: Bench) -> None:
    dispatcher = bench.dispatch()
    bench.await_run()
    bench.requests.cancel(1, "tester")
    assert dispatcher.wait(PATIENCE_S) == 0, bench.said()
    assert (bench.request.state, bench.request.lease_holder) == (RequestState.CANCELLED, "")
    assert [run.state for run in bench.store.summaries()] == [RunState.STOPPED]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_dispatch_command_executes_a_real_run_on_a_bed(bench: Bench, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(
        f"""
[engine.slurm]
config = "{bench.cluster.config}"
folder = "{tmp_path}/jobs"
environment_file = "{tmp_path}/environment"
program = ["{sys.executable}", "-m", "ringroad_lab.cli.main"]

[bed.a]
machines = {{generator = "host-a1", dut = "host-a2"}}
"""
    )
    bench.requests.cancel(1, "tester")
    bench.request_run(build="ovs-3.6", order=Order(layers=("quick",), settings=QUICK))
    command = [sys.executable, "-m", "ringroad_lab.cli.main", "dispatch", "--once", "--engine", "slurm"]
    command += ["--fleet", str(fleet), "--store", bench.location, "--poll", "0.1"]
    done = subprocess.run(command, env=bench.env, capture_output=True, text=True, timeout=RUN_PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    request = bench.requests.get(2)
    assert (request.state, request.verdict, request.attempts) == (RequestState.DONE, "measured", 1), done.stderr
    (summary,) = bench.store.summaries()
    assert (summary.run_id, summary.state, sum(summary.statuses.values())) == (request.run_id, RunState.FINISHED, 1)


def _await_output(process: subprocess.Popen[str], text: str) -> bool:
    """Wait until the process prints a text."""
    assert process.stdout
    return any(text in line for line in process.stdout)
