"""From a message on the bus about a new build to the message on the bus with its verdict, through a whole fleet, whatever is killed.

RabbitMQ, Slurm, PostgreSQL, sshd, the machines' networks and `ringroad-lab dispatch` are real; in one test the measurements as well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from bed_networks import CABLES, SSH_PORT, BedNetworks
from bus_fleet import ACKNOWLEDGEMENT, BEDS, COMMITTED, HERE, PATIENCE_S, BusFleet, Parts, nodes, proxy_of
from rabbitmq import RabbitMq, rabbitmq
from slurm_cluster import SlurmCluster, is_installed

from faulty_proxy import FaultyProxy, to_unix
from own_postgresql import make_user, postgres_socket
from ringroad_lab.request.table import Request
from ringroad_lab.statistics.verdict import Verdict

__all__ = ["postgres_socket", "rabbitmq"]

pytestmark = [
    pytest.mark.skipif(not is_installed(), reason="Slurm is not installed (slurmctld, slurmd, slurm-client)"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]


@pytest.fixture
def parts(rabbitmq: RabbitMq, postgres_socket: Path, tmp_path: Path) -> Iterator[Parts]:
    with ExitStack() as stack:
        networks = stack.enter_context(BedNetworks(BEDS))
        database = stack.enter_context(FaultyProxy(networks.address, to_unix(postgres_socket)))
        source, outgoing = (stack.enter_context(proxy_of(rabbitmq)) for _ in range(2))
        cluster = stack.enter_context(SlurmCluster(nodes(networks), networks.address))
        yield Parts(networks, cluster, rabbitmq, postgres_socket, make_user(postgres_socket), tmp_path, source, outgoing, database)


class KilledFleet(BusFleet):
    """A fleet with fabricated runs, which wait halfway until the test lets them continue."""

    def pids(self, build: str) -> dict[str, int]:
        """Return the processes of a build's runs that are halfway, by run."""
        files = [self.parts.folder / str(each.run_id) for each in self.of(build)]
        return {file.name: int(text) for file in files if file.exists() and (text := file.read_text())}

    def await_middle(self, build: str, before: dict[str, int] | None = None) -> dict[str, int]:
        """Wait until all runs of a build are halfway, in other processes than before."""
        old = set((before or {}).values())
        self.await_that(lambda: len(pids := self.pids(build)) == len(self.scenarios) and old.isdisjoint(pids.values()))
        return self.pids(build)

    def go(self, is_going: bool = True) -> None:
        """Let runs continue, or have them wait halfway again."""
        if is_going:
            (self.parts.folder / "go").touch()
        else:
            (self.parts.folder / "go").unlink()

    def finish(self, build: str) -> list[Request]:
        """Let a build's runs continue, and wait for the verdicts."""
        self.go()
        done = self.await_done(build)
        self.go(False)
        return done


@pytest.fixture
def fleet(parts: Parts) -> Iterator[KilledFleet]:
    made = KilledFleet(parts, (sys.executable, str(HERE / "fabricated_job.py")), ("BRIDGE_VETH", "BRIDGE_VLAN"))
    yield made
    made.close()


@pytest.mark.long
def test_each_build_has_one_verdict_per_scenario_whatever_is_killed(fleet: KilledFleet) -> None:
    cluster = fleet.parts.cluster
    # The first build has no run to compare with; a tester judges it good.
    fleet.dispatch()
    fleet.publish("1.0")
    for request in fleet.finish("1.0"):
        assert request.verdict == "measured"
        judge(fleet, request)

    # Kill the source when its message is stored and not acknowledged.
    fleet.parts.source.keep(ACKNOWLEDGEMENT)
    fleet.publish("1.1")
    fleet.await_requests("1.1")
    assert fleet.parts.source.met.wait(PATIENCE_S)
    fleet.kill_dispatcher()
    fleet.parts.source.cut()
    fleet.dispatch()
    fleet.finish("1.1")

    # Kill the dispatcher when Slurm has just accepted jobs; then slurmctld, which loses them.
    cluster.call("scontrol", "update", "PartitionName=lab", "State=DOWN")
    fleet.publish("1.2")
    fleet.await_that(lambda: len(fleet.queued_jobs()) == 2)
    fleet.kill_dispatcher()
    cluster.kill("slurmctld")
    for file in (cluster.folder / "state").glob("job_state*"):
        file.unlink()
    fleet.dispatch()
    cluster.start_controller()
    cluster.call("scontrol", "update", "PartitionName=lab", "State=UP")
    fleet.finish("1.2")

    # Kill slurmctld and the dispatcher while runs measure and end.
    fleet.publish("1.3")
    fleet.await_middle("1.3")
    cluster.kill("slurmctld")
    fleet.kill_dispatcher()
    fleet.go()
    fleet.dispatch()
    cluster.start_controller()
    fleet.finish("1.3")

    # Kill both runs.
    fleet.publish("1.4-slow")
    pids = fleet.await_middle("1.4-slow")
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    fleet.await_middle("1.4-slow", pids)
    assert {each.verdict for each in fleet.finish("1.4-slow")} == {Verdict.REGRESSION}

    # Kill slurmd of a generator and of a device. Slurm restarts the jobs; their first copies end, one when its slurmd is back.
    fleet.publish("1.5")
    pids = fleet.await_middle("1.5")
    lost = ("host-a1", "host-b2")
    for node in lost:
        cluster.lose(node)
    for node in lost:
        cluster.start_node(node)
    fleet.await_middle("1.5", pids)
    fleet.finish("1.5")

    # Cut the store's connections: for a while, and then when a transaction is committed.
    fleet.publish("1.6")
    fleet.await_middle("1.6")
    fleet.parts.database.is_refusing = True
    assert fleet.parts.database.cut() > 0
    fleet.go()
    fleet.await_that(lambda: "result store" in fleet.dispatchers_said())
    fleet.parts.database.is_refusing = False
    for _ in range(5):
        fleet.parts.database.cut_at(COMMITTED)
        assert fleet.parts.database.met.wait(PATIENCE_S)
    fleet.finish("1.6")
    assert "Traceback" not in fleet.dispatchers_said()

    # Kill the bus: the verdicts have to wait until it is back.
    fleet.publish("1.7")
    fleet.await_middle("1.7")
    fleet.parts.rabbitmq.kill()
    fleet.finish("1.7")
    fleet.parts.rabbitmq.start()

    # Kill the dispatcher when the bus has the verdict and its confirmation is held back.
    fleet.publish("1.8")
    fleet.await_middle("1.8")
    fleet.await_told("1.8", 2)
    fleet.parts.told.keep(ACKNOWLEDGEMENT)
    fleet.finish("1.8")
    assert fleet.parts.told.met.wait(PATIENCE_S)
    fleet.kill_dispatcher()
    fleet.parts.told.cut()
    fleet.dispatch()

    builds = ("1.0", "1.1", "1.2", "1.3", "1.4-slow", "1.5", "1.6", "1.7", "1.8")
    # The verdict of 1.8, whose confirmation was lost.
    assert fleet.check_one_verdict_each(builds) >= 1


def judge(fleet: BusFleet, request: Request) -> None:
    argv = [sys.executable, "-m", "ringroad_lab.cli.main", "judge", f"--store={fleet.location}", str(request.run_id), "pass"]
    subprocess.run(argv, env=fleet.environment, check=True, capture_output=True)


# For a slow build the bridge sends less out of one port than the links carry.
SETTINGS = """
match.version = {glob = "1.*"}
layers = ["quick"]
settings.frames = [64]
settings.repetitions = 6
settings.disturbance.extra_trials = 0
settings.method.throughput.resolution = 0.4
"""
SLOW = """
[[rule]]
name = "of slow builds"
match.version = {glob = "2.*-slow"}
build = "{name}-{version}-{release}"
scenario = "BRIDGE_VETH"
baseline = "last-stable"
layers = ["quick"]
settings.frames = [64]
settings.repetitions = 6
settings.disturbance.extra_trials = 0
settings.method.throughput.resolution = 0.4

[[rule.settings.steps]]
when = "start"
run = "tc -n $BRIDGE_NETNS qdisc add dev far2 root tbf rate 2mbit burst 3000 latency 5ms"
"""


@pytest.mark.long
def test_a_build_is_measured_between_two_machines_and_compared_with_the_previous_one(parts: Parts) -> None:
    def settings(bed: str) -> str:
        nics = ", ".join(f"{{generator_interface = 'near{n}', dut_interface = 'far{n}'}}" for n in range(1, CABLES + 1))
        keys = parts.folder / f"ssh-{bed}"
        chosen = [
            "private=false",
            "huge_pages=false",
            "physical=nic",
            "link_bps=10e6",
            "dut.linux-bridge.host=dut",
            f"host.dut.address={parts.networks.machines[f'{bed}2'].address}",
            f"host.dut.port={SSH_PORT}",
            f"host.dut.key_file={keys}/user",
            f"host.dut.known_hosts_file={keys}/known",
            f"host.dut.nics=[{nics}]",
        ]
        return f"settings = {chosen!r}"

    for bed in BEDS:
        parts.networks.start_sshd(f"{bed}2", parts.folder / f"ssh-{bed}")
    fleet = BusFleet(parts, (sys.executable, "-m", "ringroad_lab.cli.main"), ("BRIDGE_VETH",), SETTINGS + SLOW, settings)
    try:
        fleet.dispatch()
        fleet.publish("1.0")
        (first,) = fleet.await_done("1.0")
        assert first.verdict == "measured", fleet.said()
        judge(fleet, first)
        fleet.publish("1.1")
        (second,) = fleet.await_done("1.1")
        (comparison,) = fleet.store.comparisons(str(second.run_id))
        assert (comparison.baseline_run_id, comparison.verdict) == (first.run_id, second.verdict)
        assert second.verdict in {Verdict.NO_DIFFERENCE, Verdict.INCONCLUSIVE, Verdict.IMPROVEMENT, Verdict.REGRESSION}
        fleet.publish("2.0-slow")
        (slow,) = fleet.await_done("2.0-slow")
        assert slow.verdict == Verdict.REGRESSION, fleet.said()
        fleet.check_one_verdict_each(("1.0", "1.1", "2.0-slow"))
    finally:
        fleet.close()
