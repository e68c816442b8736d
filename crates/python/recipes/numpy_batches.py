"""Send and read frames as arrays, without a copy: python3 numpy_batches.py vale0:a vale0:b 100000"""

import sys
import threading

import numpy as np

import ringroad

count = int(sys.argv[3])
frame = np.zeros(64, np.uint8)
frame[:14] = np.frombuffer(bytes.fromhex("ffffffffffff02000000000188b5"), np.uint8)


def send(port: ringroad.Port) -> None:
    """Fill free buffers where they lie, each with its number in bytes 16 to 23."""
    sent = 0
    while sent < count:
        with port.tx_batch(min(256, count - sent)) as batch:
            frames = np.asarray(batch.buffers)
            frames[:, :64] = frame
            frames[:, 16:24].view(np.uint64)[:, 0] = np.arange(sent, sent + len(batch))
            sent += batch.send(length=64)


with ringroad.Port(sys.argv[1]) as port, ringroad.Port(sys.argv[2], slots=4096) as other:
    sender = threading.Thread(target=send, args=[port])
    sender.start()
    frames, last = 0, -1
    while True:
        with other.recv_batch(timeout=1) as batch:
            if not len(batch):
                break
            numbers = np.ascontiguousarray(np.asarray(batch.buffers)[:, 16:24]).view(np.uint64)[:, 0]
            assert (np.diff(numbers) > 0).all() and numbers[0] > last
            frames, last = frames + len(batch), int(numbers[-1])
    sender.join()
    print(f"{frames} of {count} frames came, in order; the last is {last}")
