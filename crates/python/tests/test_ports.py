"""Ports, batches and their memory."""

import asyncio
import gc
import threading
import time
from typing import Any

import numpy as np
import pytest

import ringroad

HEADER = bytes.fromhex("ffffffffffff02000000000188b5")


def frame(number: int, length: int = 60) -> bytes:
    """Return a frame that only this number has."""
    return (HEADER + number.to_bytes(8, "little")).ljust(length, b"\x5a")


def test_frames_arrive_unchanged_and_in_order() -> None:
    """One frame, a list, an iterator; bytes, bytearray, memoryview and an array."""
    with ringroad.Port("vale0:a") as a, ringroad.Port("vale0:b") as b:
        assert a.send(frame(1)) == 1
        assert b.recv(timeout=10) == frame(1)
        assert b.recv(timeout=0) is None
        assert b.recv_many(timeout=0) == []
        kinds: list[Any] = [frame(2), bytearray(frame(3)), memoryview(frame(4)), np.frombuffer(frame(5), np.uint8)]
        assert a.send(kinds) == 4
        assert a.send(frame(number, 60 + number) for number in range(6, 600)) == 594
        received: list[bytes] = []
        while len(received) < 598:
            received += b.recv_many(timeout=10)
        assert received[:4] == [frame(number) for number in range(2, 6)]
        assert received[4:] == [frame(number, 60 + number) for number in range(6, 600)]


def test_a_long_frame_comes_in_one_piece() -> None:
    """Over several buffers."""
    with ringroad.Port("vale0:a") as a, ringroad.Port("vale0:b") as b:
        long = frame(1, 9000)
        a.send([long, frame(2), long])
        assert b.recv(timeout=10) == long
        assert b.recv(timeout=10) == frame(2)
        with b.recv_batch(timeout=10) as batch:
            assert len(batch) == 1
            assert batch[0] == long
            assert np.asarray(batch.buffers).shape == (1, 9000)
        with pytest.raises(ringroad.FrameTooLong, match="a frame of 200000 bytes does not fit"):
            a.send(bytes(200_000))


def test_batches_show_frames_where_they_lie() -> None:
    """Written as arrays, read as arrays and as views."""
    with ringroad.Port("vale0:a") as a, ringroad.Port("vale0:b") as b:
        # More than once around the rings.
        for round_ in range(40):
            with a.tx_batch(100) as batch:
                frames, lengths = np.asarray(batch.buffers), np.asarray(batch.lengths)
                assert frames.shape == (len(batch), a.buffer_bytes)
                for place in range(len(batch)):
                    data = frame(round_ * 1000 + place, 60 + place)
                    frames[place, : len(data)] = np.frombuffer(data, np.uint8)
                    lengths[place] = len(data)
                sent = batch.send()
            came = 0
            while came < sent:
                with b.recv_batch(timeout=10) as received:
                    assert list(np.asarray(received.lengths)) == [60 + came + at for at in range(len(received))]
                    assert all(
                        received[at] == frame(round_ * 1000 + came + at, 60 + came + at) for at in range(len(received))
                    )
                    assert bytes(np.asarray(received.buffers)[-1, :60]) == bytes(received[-1][:60])
                    came += len(received)


def test_received_frames_cannot_be_written() -> None:
    """Neither by a view nor by an array."""
    with ringroad.Port("vale0:a") as a, ringroad.Port("vale0:b") as b:
        a.send(frame(1))
        with b.recv_batch(timeout=10) as batch:
            with pytest.raises(TypeError):
                batch[0][0] = 1
            assert not np.asarray(batch.buffers).flags.writeable
            with pytest.raises(IndexError):
                batch[1]


def test_views_outlive_batch_and_port() -> None:
    """Their memory stays mapped, even if its content changes."""
    with ringroad.Port("vale0:a") as a, ringroad.Port("vale0:b") as b:
        a.send([frame(1), frame(2)])
        batch = b.recv_batch(timeout=10)
        view, array = batch[0], np.asarray(batch.buffers)
        batch.release()
        with pytest.raises(ValueError, match="released"):
            batch[0]
        free = np.asarray(a.tx_batch(1).buffers)
    del batch, a, b
    gc.collect()
    assert len(bytes(view)) == 60
    assert array.shape[0] >= 1
    assert array.sum() >= 0
    free[:] = 7


def test_an_open_batch_keeps_others_out() -> None:
    """One batch at a time each way; one that is forgotten is over."""
    with ringroad.Port("vale0:a") as a, ringroad.Port("vale0:b") as b:
        a.send([frame(1), frame(2)])
        batch = b.recv_batch(1, timeout=10)
        for receive in (b.recv, b.recv_many, b.recv_batch):
            with pytest.raises(ringroad.PortBusy, match="a batch of received frames is open"):
                receive(timeout=0)
        del batch
        assert b.recv(timeout=10) == frame(2)
        free = a.tx_batch(4)
        with pytest.raises(ringroad.PortBusy, match="a batch of frames to send is open"):
            a.send(frame(3))
        with pytest.raises(ringroad.FrameTooLong, match="a buffer has"):
            free.send(1, length=1 << 20)
        with pytest.raises(ValueError, match="5 frames of a batch of 4"):
            free.send(5)
        assert free.send(0) == 0
        with pytest.raises(ValueError, match="was sent"):
            free.send()
        a.send(frame(3))
        assert b.recv(timeout=10) == frame(3)


def is_taken(port: ringroad.Port) -> bool:
    """Return whether another thread uses the port."""
    try:
        port.sync()
    except ringroad.PortBusy:
        return True
    return False


def test_a_second_thread_gets_an_error_and_the_interpreter_continues() -> None:
    """While one waits, all others run."""
    with ringroad.Port("vale0:a") as a, ringroad.Port("vale0:b") as b:
        received: list[bytes | None] = []
        waiting = threading.Thread(target=lambda: received.append(b.recv(timeout=60)))
        waiting.start()
        end = time.monotonic() + 30
        while not is_taken(b):
            assert time.monotonic() < end
        a.send(frame(1))
        waiting.join()
        assert received == [frame(1)]


def test_errors_state_what_is_wrong() -> None:
    """Names, objects, closed ports."""
    with pytest.raises(ValueError, match="no scheme"):
        ringroad.Port("nonsense::")
    with pytest.raises(ringroad.RingroadError, match="nosuch0"):
        ringroad.Port("nosuch0")
    port = ringroad.Port("vale0:a")
    with pytest.raises(ringroad.DaemonRefused) as refused:
        ringroad.Port("vale0:a")
    assert refused.value.kind == "port_taken"
    for wrong in (7, [b"", 7], None):
        with pytest.raises(TypeError):
            port.send(wrong)  # type: ignore[arg-type]
    with pytest.raises(IndexError, match="there is no queue 3"):
        port.send(frame(1), queue=3)
    with pytest.raises(ValueError, match="timeout"):
        port.recv(timeout=float("nan"))
    with pytest.raises(ValueError, match="interest is"):
        port.wait("sideways")  # type: ignore[arg-type]
    batch = port.tx_batch(4)
    port.close()
    assert port.closed
    for use in (port.recv, port.sync, port.fileno, batch.send):
        with pytest.raises(ringroad.PortGone, match="closed"):
            use()


def test_frames_of_all_queues_are_received() -> None:
    """Each queue in its turn."""
    with ringroad.Port("vale0:a", queues=2) as a, ringroad.Port("vale0:b", queues=2, slots=256) as b:
        assert (a.queues, b.queues) == (2, 2)
        a.send([frame(number) for number in range(10)], queue=0)
        a.send([frame(number) for number in range(10, 20)], queue=1)
        received: list[bytes] = []
        while len(received) < 20:
            received += b.recv_many(timeout=10)
        assert sorted(received) == [frame(number) for number in range(20)]


def test_a_port_under_asyncio_leaves_the_loop_to_others() -> None:
    """Two tasks at one port, and one that counts."""

    async def run() -> int:
        turns = 0
        async with ringroad.AsyncPort("vale0:a") as a, ringroad.AsyncPort("vale0:b", slots=64) as b:

            async def echo() -> None:
                async for received in b:
                    await b.send(received[6:12] + received[:6] + received[12:])

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            others = [asyncio.create_task(echo()), asyncio.create_task(count())]
            # Room for all is never there at once.
            sending = asyncio.create_task(a.send([frame(number) for number in range(30)]))
            for number in range(30):
                sent = frame(number)
                assert await a.recv() == sent[6:12] + sent[:6] + sent[12:]
            assert await sending == 30
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        return turns

    assert asyncio.run(asyncio.wait_for(run(), 60)) > 1
