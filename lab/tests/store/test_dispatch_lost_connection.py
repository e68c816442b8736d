"""A dispatcher whose PostgreSQL connections are cut repeatedly: each request still gets one run and one verdict."""

from __future__ import annotations

import threading
from pathlib import Path
from urllib.parse import urlsplit

import pg8000.native
import pytest
from simulated_engine import Cluster, SimulatedEngine, tiny_run

from ringroad_lab.errors import StoreError
from ringroad_lab.fleet.dispatcher import Dispatcher, DispatcherSettings
from ringroad_lab.fleet.engine.interface import Job
from ringroad_lab.fleet.leases import Leases
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.request.message import Message
from ringroad_lab.request.model import RequestState, Wanted
from ringroad_lab.store.result_store import ResultStore

BUILDS = 4
CUTS = 60
ROUNDS = 20


@pytest.mark.parametrize("location", ["postgresql"], indirect=True)
def test_cut_connections_lose_nothing(store: ResultStore, location: str, postgres_socket: Path) -> None:
    cluster = Cluster(store)
    messages: list[str] = []
    cut = 0

    def measure(job: Job) -> None:
        while True:
            try:
                store.add_run(tiny_run(job.name))
            except StoreError:
                continue
            cluster.end(job.name, 0)
            return

    def cut_connections(over: threading.Event) -> None:
        nonlocal cut
        connection = pg8000.native.Connection("lab", unix_sock=str(postgres_socket), database="postgres")
        for _ in range(CUTS):
            found = connection.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = :user", user=urlsplit(location).username
            )
            cut += len(found or ())
            if over.wait(0.03):
                break
        connection.close()

    cluster.on_submit = measure
    requests = Requests(store)
    settings = DispatcherSettings(retry_wait_s=0.0, poll_s=0.01)
    builds = 0
    # Until a cut has hit the dispatcher itself, and not only what was idle or measured.
    while not any("result store" in text for text in messages):
        assert builds < ROUNDS * BUILDS, "no cut has hit the dispatcher"
        wanted = [Wanted(build=f"ovs-{builds + number}", scenario="BRIDGE_VETH", built_at=0.0) for number in range(BUILDS)]
        requests.add(Message("koji", b"{}", float(builds)), wanted)
        builds += BUILDS
        over = threading.Event()
        cutter = threading.Thread(target=cut_connections, args=(over,))
        cutter.start()
        try:
            dispatcher = Dispatcher(store, SimulatedEngine(cluster), Leases(store, "local"), settings, say=messages.append)
            dispatcher.run(threading.Event(), once=True)
        finally:
            over.set()
            cutter.join()
    assert cut > BUILDS
    done = requests.find()
    assert [each.state for each in done] == [RequestState.DONE] * builds
    assert store.count() == len({each.run_id for each in done}) == builds
    for each in done:
        assert [change.new for change in requests.changes(each.id)].count("done") == 1
