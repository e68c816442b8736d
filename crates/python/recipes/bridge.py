"""Pass frames between two ports, both ways: python3 bridge.py vale0:a vale1:b"""

import select
import sys

import ringroad

first, second = (ringroad.Port(name) for name in sys.argv[1:])
print(first, second, flush=True)
with first, second:
    while True:
        moved = second.send(first.recv_many(timeout=0)) + first.send(second.recv_many(timeout=0))
        # A port that is ready now arms nothing.
        if not moved and not (first.arm() | second.arm()):
            select.select([first, second], [], [])
