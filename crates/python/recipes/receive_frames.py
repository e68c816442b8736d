"""Print the first frames that come, with their addresses: python3 receive_frames.py vale0:b 10"""

import sys

import ringroad

with ringroad.Port(sys.argv[1]) as port:
    print(port, flush=True)
    for _, frame in zip(range(int(sys.argv[2])), port, strict=False):
        print(f"{frame[6:12].hex(':')} -> {frame[:6].hex(':')} {len(frame)} bytes", flush=True)
