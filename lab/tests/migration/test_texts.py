"""What other programs say about a migration: QEMU's monitor, ping, the kernel's counters."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pytest

from ringroad_lab.errors import GeneratorError, GuestError
from ringroad_lab.host.interface import Completed
from ringroad_lab.message_size.station import Station
from ringroad_lab.migration.echoes import EchoCounts, echo_counts, parse_ping
from ringroad_lab.migration.migrating_guest import parse_report
from ringroad_lab.migration.monitor import Monitor

GREETING: dict[str, Any] = {"QMP": {"version": {}, "capabilities": []}}


@contextmanager
def monitor_that_says(folder: Path, *lines: object) -> Iterator[PurePosixPath]:
    """A socket that greets with the first line, and answers each command with the next one: an object, or bytes as they are."""
    path = folder / "monitor.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            peer, _ = listener.accept()
            with peer, peer.makefile("rb") as commands:
                for number, line in enumerate(lines):
                    if number:
                        commands.readline()
                    peer.sendall(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield PurePosixPath(path)
        thread.join()


def test_the_monitor_returns_results_and_ignores_events(tmp_path: Path) -> None:
    event = json.dumps({"event": "STOP", "data": {}}).encode()
    result = json.dumps({"return": {"status": "running"}}).encode()
    with monitor_that_says(tmp_path, GREETING, {"return": {}}, event + b"\n" + result + b"\n") as path:
        monitor = Monitor(path)
        assert monitor.execute("query-status") == {"status": "running"}
        monitor.close()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([b"\n"], "is no message of QEMU's monitor"),
        ([b"[" * 100_000 + b"\n"], "is no message of QEMU's monitor"),
        ([b"[]\n"], "is no message of QEMU's monitor"),
        ([GREETING, {"error": {"class": "CommandNotFound", "desc": "not here"}}], "QEMU refuses qmp_capabilities: .*not here"),
        ([GREETING, b""], "the end is no message"),
    ],
)
def test_a_monitor_that_says_something_else_is_reported(tmp_path: Path, lines: list[object], words: str) -> None:
    with monitor_that_says(tmp_path, *lines) as path, pytest.raises(GuestError, match=words):
        Monitor(path)


def test_a_monitor_that_does_not_listen_is_reported(tmp_path: Path) -> None:
    with pytest.raises(GuestError, match="No such file"):
        Monitor(PurePosixPath(tmp_path / "none.sock"))


REPORT = {"status": "completed", "downtime": 42, "total-time": 1250, "setup-time": 3, "ram": {"transferred": 9_000_000}}


def test_times_of_a_report_are_seconds() -> None:
    report = parse_report(REPORT)
    assert (report.downtime_s, report.total_s, report.setup_s, report.transferred_bytes) == (0.042, 1.25, 0.003, 9_000_000)


@pytest.mark.parametrize("missing", ["downtime", "total-time", "setup-time", "ram"])
def test_a_report_without_a_figure_is_an_error(missing: str) -> None:
    with pytest.raises(GuestError, match="has no figures"):
        parse_report({name: value for name, value in REPORT.items() if name != missing})


def answer(moment: float, number: int, more: str = "") -> str:
    return f"[{moment:.6f}] 1008 bytes from 198.18.0.1: icmp_seq={number} ttl=64 time=0.512 ms{more}\n"


def test_the_longest_gap_is_the_longest_time_between_two_answers() -> None:
    text = "PING 198.18.0.1 (198.18.0.1) 1000(1028) bytes of data.\n"
    text += answer(100.0, 1) + answer(100.01, 2)
    text += "From 198.18.0.2 icmp_seq=3 Destination Host Unreachable\n"
    text += answer(100.51, 40) + answer(100.52, 41)
    echoes = parse_ping(text)
    assert echoes.longest_gap_s == pytest.approx(0.5)
    assert (echoes.duplicates, echoes.damaged) == (0, 0)
    assert echoes.rates(0.25) == ((0.0, 8.0), (0.25, 0.0), (0.5, 8.0))


def test_duplicate_and_damaged_answers_are_counted() -> None:
    text = answer(1.0, 1) + answer(1.1, 1, " (DUP!)") + answer(1.2, 2, "\nwrong data byte #16 should be 0x10 but was 0x0\n#16\t0 0 0")
    echoes = parse_ping(text)
    assert (echoes.duplicates, echoes.damaged) == (1, 1)


@pytest.mark.parametrize("text", ["", answer(1.0, 1), "ping: connect: Network is unreachable\n", "[9999999999999.0] 1 bytes from x:\n" * 2])
def test_a_load_without_answers_is_an_error(text: str) -> None:
    with pytest.raises(GeneratorError, match="messages were answered"):
        parse_ping(text)


class SaidStation:
    """A station whose file of counters has a given text."""

    name = "station"

    def __init__(self, text: str) -> None:
        self.text = text

    def run(self, argv: list[str], **_: Any) -> Completed:  # noqa: ANN401
        return Completed(tuple(argv), 0, self.text, "")


def counts_of(text: str) -> EchoCounts:
    return echo_counts(cast(Station, SaidStation(text)))


def test_counters_are_found_by_their_names() -> None:
    before = counts_of("Ip: Forwarding\nIp: 2\nIcmp: InMsgs InEchos InEchoReps OutEchos OutEchoReps\nIcmp: 9 1 2 3 4\n")
    assert before == EchoCounts(requests_received=1, replies_sent=4, requests_sent=3, replies_received=2)
    after = counts_of("Icmp: OutEchoReps InEchos InEchoReps OutEchos\nIcmp: 14 11 12 13\n")
    assert after.since(before) == EchoCounts(10, 10, 10, 10)


@pytest.mark.parametrize("text", ["", "Icmp: InEchos\nIcmp: 1\n", "Icmp: InEchos\nIcmp: one\n", "Icmp: InEchos OutEchos\nIcmp: 1\n"])
def test_a_kernel_without_the_counters_is_reported(text: str) -> None:
    with pytest.raises(GuestError, match="does not count echo messages"):
        counts_of(text)
