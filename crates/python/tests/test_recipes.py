"""The recipes of the documentation work as described."""

import csv
import io
import json
import os
import subprocess
from pathlib import Path

import ringroad
from conftest import Recipe

FRAME = bytes.fromhex("ffffffffffff02000000000188b5").ljust(60, b"\0")
BACK = FRAME[6:12] + FRAME[:6] + FRAME[12:]
SYSTEM_PYTHON = "/usr/bin/python3"


def test_a_frame_is_sent_and_received() -> None:
    """By two recipes."""
    with Recipe("receive_frames.py", "vale0:b", "1") as receiver:
        assert "vale0:b" in receiver.await_line()
        with Recipe("send_frame.py", "vale0:a") as sender:
            sender.await_end()
        assert receiver.await_end() == "02:00:00:00:00:01 -> ff:ff:ff:ff:ff:ff 60 bytes\n"


def test_arrays_are_sent_and_read() -> None:
    """In order."""
    with Recipe("numpy_batches.py", "vale0:a", "vale0:b", "20000") as recipe:
        assert "frames came, in order" in recipe.await_end()


def test_frames_come_back_under_asyncio() -> None:
    """To their sender."""
    with Recipe("asyncio_echo.py", "vale0:echo") as recipe, ringroad.Port("vale0:a") as port:
        recipe.await_line()
        port.send(FRAME)
        assert port.recv(timeout=30) == BACK


def test_a_container_answers_scapy() -> None:
    """With Debian's Scapy, by Debian's Python."""
    command = ["ringroad", "--json", "container", f"py-{os.getpid()}", "--port", "vale0:c"]
    command += ["--address", "10.0.0.1/24", "--", "sleep", "1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as station:
        assert station.stdout
        assert any('"ready":true' in line for line in station.stdout)
        with Recipe("scapy_ping.py", "vale0:scapy", "10.0.0.9", "10.0.0.1", python=SYSTEM_PYTHON) as recipe:
            assert "and answers" in recipe.await_end()
        station.terminate()


def test_a_capture_is_replayed(tmp_path: Path) -> None:
    """Whole."""
    capture = tmp_path / "frames.pcap"
    with ringroad.Port(f"pcap:out={capture}") as port:
        port.send([FRAME] * 100)
    with ringroad.Port("vale0:b") as port:
        with Recipe("replay_capture.py", str(capture), "vale0:a") as recipe:
            assert "100 frames sent" in recipe.await_end()
        received: list[bytes] = []
        while len(received) < 100:
            received += port.recv_many(timeout=30)
        assert received == [FRAME] * 100


def test_statistics_are_rows() -> None:
    """One for each port."""
    with ringroad.Port("vale0:a") as a, ringroad.Port("vale0:b") as b:
        a.send([FRAME] * 3)
        while b.recv(timeout=0.5):
            pass
        with Recipe("statistics_rows.py") as recipe:
            rows = list(csv.DictReader(io.StringIO(recipe.await_end())))
    counts = {row["port"]: (row["received_frames"], row["delivered_frames"], row["dropped"]) for row in rows}
    assert counts == {"vale0:a": ("3", "0", "0"), "vale0:b": ("0", "3", "0")}


def test_the_generator_reports() -> None:
    """Frames sent and received."""
    with Recipe("generate_load.py", "vale0:a", "vale0:b", "1kpps") as recipe:
        assert json.loads(recipe.await_end())


def test_a_bridge_joins_two_switches() -> None:
    """Both ways."""
    with (
        Recipe("bridge.py", "vale0:x", "vale1:x") as bridge,
        ringroad.Port("vale0:a") as a,
        ringroad.Port("vale1:b") as b,
    ):
        bridge.await_line()
        a.send(FRAME)
        assert b.recv(timeout=30) == FRAME
        b.send(BACK)
        assert a.recv(timeout=30) == BACK


def test_several_ports_are_awaited() -> None:
    """Each port announces its own frames."""
    with Recipe("wait_for_several.py", "vale0:x", "vale1:x", "2") as recipe:
        recipe.await_line()
        recipe.await_line()
        with ringroad.Port("vale1:a") as port:
            port.send(FRAME)
            assert recipe.await_line() == "vale1:x: 60 bytes\n"
        with ringroad.Port("vale0:a") as port:
            port.send(FRAME)
            assert recipe.await_line() == "vale0:x: 60 bytes\n"
        recipe.await_end()
