"""A whole fleet for tests: a bus, Slurm on the machines of two beds, a store in PostgreSQL, and `ringroad-lab dispatch` between them.

Bus and store are reached through proxies, which fail when a test requests that.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from bed_networks import BedNetworks
from rabbitmq import HOST, RabbitMq
from slurm_cluster import Node, SlurmCluster

from faulty_proxy import FaultyProxy
from ringroad_lab.deadline import wait_until
from ringroad_lab.fleet.bed_leases import BedLeases
from ringroad_lab.fleet.outbox import Outbox
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.fleet.tables import DeliveryState
from ringroad_lab.notification.ci_message import result_of
from ringroad_lab.record import RunState
from ringroad_lab.request.model import RequestState
from ringroad_lab.request.table import Request
from ringroad_lab.store.queries import RunFilter
from ringroad_lab.store.result_store import ResultStore

PATIENCE_S = 240.0
BEDS = "ab"
QUEUE, JUDGE = "fleet-under-test", "reads-ci-messages"
TOPIC = "org.fedoraproject.prod.buildsys.build.state.change"
CI_TOPIC = "org.centos.prod.ci.koji-build.test"
# Basic.Ack of AMQP 0-9-1: class 60, method 80.
ACKNOWLEDGEMENT = b"\x00\x3c\x00\x50"
# The answer of PostgreSQL when a transaction is committed (CommandComplete).
COMMITTED = b"COMMIT\0"
HERE = Path(__file__).parent


def nodes(networks: BedNetworks) -> list[Node]:
    """Return the machines of the beds as nodes of Slurm."""
    return [Node(f"host-{name}", f"bed-{name[0]}", each.address, each.inside) for name, each in networks.machines.items()]


@dataclass
class Parts:
    """The parts of a fleet."""

    networks: BedNetworks
    cluster: SlurmCluster
    rabbitmq: RabbitMq
    postgres_socket: Path
    database_user: str
    folder: Path
    source: FaultyProxy
    """Between the bus and the source."""
    told: FaultyProxy
    """Between the outbox sender and the bus."""
    database: FaultyProxy
    """Between the store and all programs of the fleet."""


@dataclass
class BusFleet:
    """The fleet, with the program of its jobs and additional keys for its settings file."""

    parts: Parts
    program: Sequence[str]
    scenarios: Sequence[str]
    rule_keys: str = ""
    bed_keys: Callable[[str], str] = lambda _bed: ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Write the fleet's files, and declare its queues."""
        parts, folder = self.parts, self.parts.folder
        self.store = ResultStore(f"postgresql://{parts.database_user}@/postgres?unix_sock={parts.postgres_socket}")
        self.location = f"postgresql://{parts.database_user}@{parts.networks.address}:{parts.database.port}/postgres"
        self.requests = Requests(self.store)
        self._write_bus_urls()
        (folder / "fleet.toml").write_text(self._fleet())
        (folder / "notifications.toml").write_text(
            f"""
[[ci-message]]
name = "CI"
url_file = "{folder}/told-url"
web_url = "https://lab.example"
contact = {{team = "switches", email = "switches@example.org", docs = "https://lab.example/docs"}}
"""
        )
        path = os.pathsep.join([*map(str, (HERE.parent, HERE)), *sys.path])
        own = {"PYTHONPATH": path, "RINGROAD_LAB_CONFIG": str(folder), "FABRICATED_FOLDER": str(folder)}
        self.environment = {**parts.cluster.environment(), **own}
        values = own | {name: os.environ[name] for name in ("RINGROAD_BIN_DIR", "RINGROAD_KERNEL_DIR") if name in os.environ}
        lines = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
        # A lock for each node, as if each were a machine.
        lines.append(f'RINGROAD_LAB_LOCK={shlex.quote(str(folder))}/lock-"$SLURMD_NODENAME"')
        (folder / "environment").write_text("\n".join(lines) + "\n")
        parts.rabbitmq.declare(QUEUE, TOPIC)
        parts.rabbitmq.declare(JUDGE, f"{CI_TOPIC}.#")

    def close(self) -> None:
        """Stop everything that still runs."""
        for process in self.processes:
            process.kill()
            process.wait()
        for each in self.left():
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self.store.close()
        for queue in (QUEUE, JUDGE):
            self.parts.rabbitmq.delete(queue)

    # The bus

    def publish(self, build: str) -> None:
        """Publish a build by its version: the same message twice, and once more as another message."""
        number = int.from_bytes(build.encode()) % 10**6
        fields = {"build_id": number, "task_id": number + 1, "name": "openvswitch", "version": build, "release": "1.fc43"}
        body = json.dumps({**fields, "old": 0, "new": 1, "attribute": "state", "owner": "jdoe", "instance": "primary"}).encode()
        for message_id in (f"first-{build}", f"first-{build}", f"second-{build}"):
            self.parts.rabbitmq.publish(TOPIC, body, message_id=message_id)

    def ci_messages(self) -> dict[tuple[str, str, str], list[tuple[str, bytes]]]:
        """Take the CI messages from the bus: ids and bodies, by build, scenario and stage."""
        found: defaultdict[tuple[str, str, str], list[tuple[str, bytes]]] = defaultdict(list)
        while message := self.parts.rabbitmq.take(JUDGE):
            body = json.loads(message.body)
            stage = str(message.routing_key).removeprefix(f"{CI_TOPIC}.")
            found[body["artifact"]["nvr"], body["test"]["type"], stage].append((str(message.message_id), message.body))
        return dict(found)

    # Its processes

    def dispatch(self) -> psutil.Process:
        """Start a dispatcher."""
        argv = [sys.executable, "-m", "ringroad_lab.cli.main", "dispatch", "--engine=slurm", f"--store={self.location}"]
        argv += ["--poll=0.1", "--retry-wait=0", "--attempts=20"]
        with (self.parts.folder / "dispatchers.said").open("ab") as said:
            process = subprocess.Popen(argv, env=self.environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        self.processes.append(process)
        return process

    def kill_dispatcher(self) -> None:
        """Kill the last dispatcher with SIGKILL."""
        self.processes[-1].kill()
        self.processes[-1].wait()

    def end_dispatcher(self) -> None:
        """Stop the last dispatcher in order."""
        self.processes[-1].terminate()
        assert self.processes[-1].wait(PATIENCE_S) == 0, self.said()

    def left(self) -> list[psutil.Process]:
        """Return the jobs and dispatchers of the fleet that still run."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                is_its = process.environ().get("FABRICATED_FOLDER") == str(self.parts.folder)
                if is_its and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def dispatchers_said(self) -> str:
        """Return the output of the dispatchers."""
        return (self.parts.folder / "dispatchers.said").read_text()

    def said(self) -> str:
        """Return the output of the fleet's programs, and the changes of requests."""
        logs = [self.parts.folder / "dispatchers.said", *(self.parts.folder / "jobs").glob("*.log")]
        outputs = [f"{path.name}:\n{path.read_text()[-3000:]}" for path in logs if path.exists()]
        changes = [str(change) for each in self.requests.find() for change in self.requests.changes(each.id)]
        return "\n".join([*outputs, *changes, self.parts.cluster.said()])

    # Its requests

    def of(self, build: str) -> list[Request]:
        """Return the requests for a build, by its version."""
        return [each for each in self.requests.find() if each.build == nvr(build)]

    def await_requests(self, build: str) -> list[Request]:
        """Wait until a build has a request for each scenario."""
        self.await_that(lambda: len(self.of(build)) == len(self.scenarios))
        return self.of(build)

    def await_done(self, build: str) -> list[Request]:
        """Wait for the verdicts."""
        self.await_that(lambda: [each.state for each in self.of(build)] == [RequestState.DONE] * len(self.scenarios))
        return self.of(build)

    def await_told(self, build: str, stages: int) -> None:
        """Wait until the bus has this many stages of each request."""
        self.await_that(lambda: all(self._delivered_stages(each) == stages for each in self.of(build)))

    def await_that(self, happens: Callable[[], bool]) -> None:
        """Wait until something happens."""
        assert wait_until(happens, PATIENCE_S), self.said()

    def queued_jobs(self) -> list[str]:
        """Return the jobs in Slurm's queue."""
        return self.parts.cluster.call("squeue", "--noheader", "--format=%j %T %B").splitlines()

    # Final checks

    def check_one_verdict_each(self, builds: Collection[str]) -> int:
        """Each build and scenario has one request, one finished run, one verdict, and one message of each stage; nothing is left.

        Return how many messages of CI were sent again, with the same id.
        """
        wanted = {(nvr(build), scenario) for build in builds for scenario in self.scenarios}
        requests = self.requests.find()
        assert {(each.build, each.scenario) for each in requests} == wanted
        assert len(requests) == len(wanted) == self.store.count(RunFilter(state=RunState.FINISHED)), self.said()
        for build in builds:
            self.await_told(build, 3)
        messages = self.ci_messages()
        numbers = {key: len(set(sent)) for key, sent in messages.items()}
        once = {(*key, stage): 1 for key in wanted for stage in ("queued", "running", "complete")}
        assert numbers == once, f"{numbers.items() ^ once.items()}\n{self.said()}"
        for each in requests:
            assert (each.state, each.lease_holder) == (RequestState.DONE, ""), self.said()
            # The same message again, and another of the same build.
            assert each.duplicates >= 2
            changes = [change.new for change in self.requests.changes(each.id) if change.old != change.new]
            assert changes.count("done") == 1
            record = self.store.get_run(str(each.run_id))
            assert (record.state, record.labels["build"], record.name) == (RunState.FINISHED, each.build, each.scenario)
            _, body = messages[each.build, each.scenario, "complete"][0]
            assert json.loads(body)["test"]["result"] == result_of(each.verdict)
        ids = [message_id for sent in messages.values() for message_id, _ in sent]
        assert len(set(ids)) == len(messages)
        self.check_nothing_left()
        return len(ids) - len(messages)

    def check_nothing_left(self) -> None:
        """No message, no job, no bed, no process is left."""
        self.end_dispatcher()
        assert self.parts.rabbitmq.waiting(QUEUE) == 0
        self.await_that(lambda: not self.queued_jobs())
        beds = BedLeases(self.store).states(list(BEDS))
        assert {name: (bed.is_free, bed.quarantine) for name, bed in beds.items()} == dict.fromkeys(BEDS, (True, "")), self.said()
        self.await_that(lambda: not self.left())

    def _delivered_stages(self, request: Request) -> int:
        return [row.state for row in Outbox(self.store).of_request(request.id)].count(DeliveryState.DELIVERED)

    def _write_bus_urls(self) -> None:
        for name, proxy in (("source", self.parts.source), ("told", self.parts.told)):
            (self.parts.folder / f"{name}-url").write_text(
                self.parts.rabbitmq.url.replace(f":{self.parts.rabbitmq.port}", f":{proxy.port}")
            )

    def _fleet(self) -> str:
        folder = self.parts.folder
        text = f"""
[source.bus]
kind = "amqp"
as = "fedora"
url_file = "{folder}/source-url"
queue = "{QUEUE}"
queue_type = "classic"
topics = ["{TOPIC}"]

[engine.slurm]
config = "{self.parts.cluster.config}"
folder = "{folder}/jobs"
environment_file = "{folder}/environment"
program = {json.dumps(list(self.program))}
"""
        for scenario in self.scenarios:
            text += f"""
[[rule]]
name = "{scenario} of each build that is complete"
source = "fedora"
match."@event" = "{TOPIC}"
match.new = 1
match.name = "openvswitch"
build = "{{name}}-{{version}}-{{release}}"
scenario = "{scenario}"
baseline = "last-stable"
owner = "{{owner}}"
{self.rule_keys}
"""
        for bed in BEDS:
            text += f"""
[bed.{bed}]
machines = {{generator = "host-{bed}1", dut = "host-{bed}2"}}
{self.bed_keys(bed)}
"""
        tomllib.loads(text)
        return text


def nvr(build: str) -> str:
    """Return the name, version and release of a build, given its version."""
    return f"openvswitch-{build}-1.fc43"


def proxy_of(rabbitmq: RabbitMq) -> FaultyProxy:
    """Return a proxy in front of the bus."""
    return FaultyProxy(HOST, lambda: socket.create_connection((HOST, rabbitmq.port)))
