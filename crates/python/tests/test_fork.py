"""Ports after a fork: they belong to the process that opened them."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from test_ports import frame

import ringroad

PATIENCE_S = 30


def fork() -> int:
    """Fork, like ``os.fork()``. Python warns of threads that may hold locks; these children use none of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def status_of_child(act: Callable[[], object]) -> int:
    """Return the exit status of a child that does this, negative for a signal; 1 where it raises."""
    child = fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(PATIENCE_S)
            act()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def raises_fork_error(act: Callable[[], object]) -> None:
    """Expect the exception of children."""
    with pytest.raises(ringroad.ForkError, match="is a child"):
        act()


def test_each_use_in_a_child_raises_and_the_parent_goes_on() -> None:
    """Ports, batches, views and connections."""
    with ringroad.Port("vale0:a") as a, ringroad.Port("vale0:b") as b:
        a.send(frame(1))
        received, free = b.recv_batch(timeout=10), a.tx_batch(2)
        view, room, buffers = received[0], free[0], free.buffers
        connection = ringroad.Daemon()
        uses: list[Callable[[], object]] = [
            lambda: received[0],
            lambda: received.buffers,
            lambda: free[0],
            lambda: free.lengths,
            lambda: free.send(length=60),
            lambda: memoryview(buffers),
            lambda: a.send(frame(2), timeout=0),
            lambda: a.tx_batch(timeout=0),
            lambda: b.recv(timeout=0),
            lambda: b.recv_many(timeout=0),
            lambda: b.recv_batch(timeout=0),
            lambda: next(b),
            lambda: b.wait(timeout=0),
            b.sync,
            b.arm,
            b.disarm,
            b.fileno,
            lambda: b.queues,
            lambda: b.pending,
            lambda: b.buffer_bytes,
            lambda: b.max_frame_bytes,
            lambda: b.reconnections,
            connection.ports,
        ]

        def child() -> None:
            for use in uses:
                raises_fork_error(use)
            # Made before the fork: no bytes of the parent's.
            assert bytes(view) == bytes(60)
            room[:3] = b"abc"
            assert bytes(room[:3]) == b"abc"
            # There is nothing to give back.
            received.release()
            for port in (a, b):
                port.close()
                assert port.closed
            with a:
                pass
            # A child of the child, and ports of its own.
            assert status_of_child(lambda: raises_fork_error(b.sync)) == 0
            with ringroad.Port("vale1:a") as own, ringroad.Port("vale1:b") as other:
                own.send(frame(3))
                assert other.recv(timeout=10) == frame(3)
                assert status_of_child(lambda: raises_fork_error(own.sync)) == 0

        assert status_of_child(child) == 0
        assert view == frame(1)
        assert bytes(room[:3]) != b"abc"
        received.release()
        room[:60] = frame(4)
        assert free.send(1, length=60) == 1
        assert b.recv(timeout=10) == frame(4)
        assert {port["name"] for port in connection.ports()} >= {"vale0:a", "vale0:b"}


def test_devices_in_the_program_stay_the_parents(tmp_path: Path) -> None:
    """A port that the program serves itself."""
    capture = tmp_path / "frames.pcap"
    with ringroad.Port(f"pcap:out={capture}") as port:
        port.send(frame(1))

        def child() -> None:
            for use in (port.sync, lambda: port.send(frame(2)), lambda: port.wait("tx", 0)):
                raises_fork_error(use)

        assert status_of_child(child) == 0
        port.send(frame(3))
    with ringroad.Port(f"pcap:{capture}") as written:
        assert written.recv_many(timeout=10) == [frame(1), frame(3)]


def test_children_end_in_order() -> None:
    """By their finalizers, by multiprocessing's, and by another program."""
    with ringroad.Port("vale0:a") as a, ringroad.Port("vale0:b") as b:
        a.send(frame(1))
        batch = b.recv_batch(timeout=10)
        child = fork()
        if child == 0:
            # pytest catches the exit of the test, so the interpreter ends as it would after an exit.
            del a, b, batch
            gc.collect()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            process = multiprocessing.get_context("fork").Process(target=gc.collect)
            process.start()
            process.join(PATIENCE_S)
        assert process.exitcode == 0
        child = fork()
        if child == 0:
            os.execv(sys.executable, [sys.executable, "-c", "pass"])
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        batch.release()
        a.send(frame(2))
        assert b.recv(timeout=10) == frame(2)


FINALIZERS = """
import os, ringroad
a, b = ringroad.Port("vale0:a"), ringroad.Port("vale0:b")
a.send(bytes(range(60)))
batch = b.recv_batch(timeout=10)
view = batch[0]
child = os.fork()
if child == 0:
    raise SystemExit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert bytes(view) == bytes(range(60))
"""


def test_an_interpreter_that_ends_in_a_child_finalizes_its_copies() -> None:
    """Without an error or a message."""
    # -P: not the sources in the current folder.
    command = [sys.executable, "-P", "-c", FINALIZERS]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ended.returncode, ended.stderr) == (0, "")


def await_no_port(daemon: ringroad.Daemon) -> None:
    """Wait until the daemon has no port. It learns of the end of a program by its connection."""
    end = time.monotonic() + PATIENCE_S
    while daemon.ports():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_port_ends_with_its_process_though_a_child_lives(is_killed: bool, daemon: ringroad.Daemon) -> None:
    """It is closed, or its process is killed."""
    end, hold = os.pipe()
    opened, tell = os.pipe()
    parent = fork()
    if parent == 0:
        signal.alarm(PATIENCE_S)
        os.close(hold)
        port = ringroad.Port("vale0:a")
        if fork() == 0:
            # Until the test closes the other end.
            signal.alarm(PATIENCE_S)
            os.read(end, 1)
            os._exit(0)
        if not is_killed:
            port.close()
        os.write(tell, b"x")
        signal.pause()
    os.close(tell)
    assert os.read(opened, 1) == b"x"
    if is_killed:
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
    await_no_port(daemon)
    with ringroad.Port("vale0:a") as again:
        assert again.name == "vale0:a"
    if not is_killed:
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
    for descriptor in (end, hold, opened):
        os.close(descriptor)
