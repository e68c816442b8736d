"""Send the frames of a capture file at their times: python3 replay_capture.py file.pcap vale0:a"""

import sys
import time

import numpy as np

import ringroad

with ringroad.Port(f"pcap:{sys.argv[1]}") as capture, ringroad.Port(sys.argv[2]) as port:
    begin = first = None
    frames = 0
    try:
        while True:
            with capture.recv_batch(timeout=0) as batch:
                for frame, at in zip(batch, np.asarray(batch.timestamps).astype(float) / 1e9, strict=True):
                    begin, first = begin or time.monotonic(), first or at
                    time.sleep(max(0.0, begin + at - first - time.monotonic()))
                    frames += port.send(frame)
                if not len(batch):
                    break
    except ringroad.PortGone as end:
        print(end)
    print(f"{frames} frames sent")
