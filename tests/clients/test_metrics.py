"""The metrics endpoint, as Prometheus' own client library and as probes see it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from conftest import PATIENCE_S, Daemon

DASHBOARD = Path(__file__).parents[2] / "packaging" / "grafana" / "ringroad.json"
# How names of histograms and counters end in queries.
SUFFIXES = ("_total", "_bucket", "_sum", "_count", "")


@dataclass
class Endpoint:
    """A server of metrics."""

    address: str

    def fetch(self, path: str) -> tuple[int, str, str]:
        """Return status, content type and body of the answer to a path."""
        return get(f"http://{self.address}{path}")

    def ask(self, request: bytes) -> bytes:
        """Return all that comes back after the bytes of a request."""
        with self.connect() as connection:
            connection.sendall(request)
            answer = b""
            while piece := connection.recv(4096):
                answer += piece
            return answer

    def connect(self) -> socket.socket:
        """Return a connection on which nothing was sent."""
        host, port = self.address.rsplit(":", 1)
        return socket.create_connection((host, int(port)), PATIENCE_S)


def get(url: str) -> tuple[int, str, str]:
    """Return status, content type and body of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.headers["Content-Type"], refused.read().decode()


def end(server: subprocess.Popen[str]) -> None:
    """Kill a server, which then leaves its socket behind."""
    server.kill()
    server.communicate(timeout=PATIENCE_S)


@pytest.fixture
def endpoint(daemon: Daemon) -> Iterator[Endpoint]:
    """Serve metrics on a free port."""
    process, ready = daemon.start("metrics", "--listen", "127.0.0.1:0")
    yield Endpoint(ready["address"])
    end(process)


def values(body: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the value of each sample by name and labels, once the client library has accepted the whole text."""
    families = text_string_to_metric_families(body)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_the_client_library_reads_every_metric_and_the_sums_are_exact(daemon: Daemon, endpoint: Endpoint) -> None:
    """Frames of a generator that has left stay in its switch's account."""
    daemon.run("attach", "vale0:b@slots=4096,queues=2", "--for-program")
    daemon.run("gen", "vale0:a", "--count", "1000")
    status, content_type, body = endpoint.fetch("/metrics")
    assert (status, content_type) == (200, "application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert body.endswith("# EOF\n")
    metrics = values(body)
    switch = (("switch", "vale0"),)
    assert metrics["ringroad_switch_received_frames_total", switch] == 1000
    assert metrics["ringroad_switch_dropped_frames_total", (("cause", "not_bound"), *switch)] == 1000
    assert metrics["ringroad_switch_addresses", switch] == 0
    port = (("kind", "shm"), ("port", "vale0:b"))
    assert metrics["ringroad_port_dropped_frames_total", (("cause", "not_bound"), *port)] == 1000
    assert metrics["ringroad_port_bound", port] == 0
    worker = (("worker", "0"),)
    turns = metrics["ringroad_worker_turn_frames_count", worker]
    assert turns == metrics["ringroad_worker_busy_turns_total", worker] > 0
    assert metrics["ringroad_worker_turn_frames_sum", worker] == 1000
    assert metrics["ringroad_worker_turn_frames_bucket", (("le", "+Inf"), *worker)] == turns
    # The same without a server.
    printed = values(daemon.run("metrics"))
    assert printed.keys() == metrics.keys()
    assert values(json.loads(daemon.run("--json", "metrics"))["openmetrics"]).keys() == metrics.keys()


def test_flow_tables_count_what_passed_them(daemon: Daemon, endpoint: Endpoint) -> None:
    """Only tables in use are there."""
    daemon.run("attach", "vale0:b", "--for-program")
    daemon.run("switch", "vale0", "--openflow")
    daemon.run("flows", "add", "vale0", "in_port=2,actions=goto_table:2")
    daemon.run("gen", "vale0:a", "--count", "1000")
    metrics = values(endpoint.fetch("/metrics")[2])
    switch = ("switch", "vale0")
    names = ("flows", "lookups_total", "matches_total")
    tables = {
        number: [metrics.get((f"ringroad_openflow_table_{name}", (switch, ("table", number)))) for name in names]
        for number in "012"
    }
    assert tables == {"0": [1, 1000, 1000], "1": [None, None, None], "2": [0, 1000, 0]}
    assert metrics["ringroad_openflow_flow_mods_total", (switch,)] == 1
    assert metrics["ringroad_openflow_packet_ins_total", (switch,)] == 0
    assert metrics["ringroad_openflow_controllers", (switch,)] == 0


def test_probes_see_a_waiting_port_and_a_daemon_that_is_gone(daemon: Daemon, endpoint: Endpoint) -> None:
    """A daemon that waits is healthy and not ready; one that has ended is neither."""
    assert endpoint.fetch("/healthz")[::2] == endpoint.fetch("/readyz")[::2] == (200, "ok\n")
    daemon.run("down")
    config = daemon.folder / "waits.toml"
    config.write_text('[[port]]\nname = "vale0:later"\ndriver = "packet:rr-no-such0"\n')

    def until(path: str, status: int) -> str:
        limit = time.monotonic() + PATIENCE_S
        while (answer := endpoint.fetch(path))[0] != status:
            assert time.monotonic() < limit, f"{path}: {answer}"
        return answer[2]

    assert "the daemon does not answer" in until("/healthz", 503)
    assert endpoint.fetch("/metrics")[0] == 503
    daemon.run("up", "--config", str(config))
    assert until("/healthz", 200) == "ok\n"
    assert "vale0:later: " in until("/readyz", 503)
    assert values(endpoint.fetch("/metrics")[2])["ringroad_waiting_ports", (("port", "vale0:later"),)] == 1


def test_other_requests_are_refused_and_a_slow_one_blocks_no_other(endpoint: Endpoint) -> None:
    """Each bad request gets its own answer, and silent connections leave room for others."""
    assert endpoint.fetch("/other")[0] == 404
    assert endpoint.ask(b"POST /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 405")
    assert endpoint.ask(b"\x00\x01\r\n\r\n").startswith(b"HTTP/1.1 400")
    # Not a byte more than is read, or the answer would be lost.
    assert endpoint.ask(b"GET / HTTP/1.1\r\nX: ".ljust(8192, b"y")).startswith(b"HTTP/1.1 431")
    silent = [endpoint.connect() for _ in range(8)]
    assert endpoint.fetch("/healthz")[0] == 200
    # A connection that the client closes gets no answer, and a silent connection is closed.
    silent.pop().close()
    assert silent[0].recv(1) == b""
    for connection in silent:
        connection.close()


def test_a_socket_in_the_file_system_serves_too(daemon: Daemon) -> None:
    """A path is the address of a UNIX socket; a second server does not take it from the first."""
    path = str(daemon.folder / "metrics.sock")
    process, ready = daemon.start("metrics", "--listen", path)
    assert ready["address"] == path
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(path)
        connection.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 200"
    end(process)
    # The socket of a killed server is replaced.
    again, _ = daemon.start("metrics", "--listen", path)
    end(again)


def test_the_dashboard_shows_only_metrics_that_exist(daemon: Daemon) -> None:
    """Every name in the dashboard's queries is one that the daemon has."""
    daemon.run("attach", "vale0:b@queues=2", "--for-program")
    daemon.run("gen", "vale0:a", "--count", "10")
    known = {family.name for family in text_string_to_metric_families(daemon.run("metrics"))}
    queries = re.findall(r'"expr": "((?:[^"\\]|\\.)*)"', DASHBOARD.read_text())
    assert queries
    for name in {name for query in queries for name in re.findall(r"ringroad_\w+", query)}:
        assert any(name.removesuffix(suffix) in known for suffix in SUFFIXES), name
