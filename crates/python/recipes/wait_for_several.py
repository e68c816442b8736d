"""Wait for frames of several ports at once: python3 wait_for_several.py vale0:a vale1:a 10"""

import selectors
import sys

import ringroad

left = int(sys.argv[-1])
ports = [ringroad.Port(name) for name in sys.argv[1:-1]]
selector = selectors.DefaultSelector()
for port in ports:
    selector.register(port, selectors.EVENT_READ)
    print(port, flush=True)
while left > 0:
    # Armed ports announce frames by their descriptors; a port that is ready now arms nothing.
    ready = [port.arm() for port in ports]
    if not any(ready):
        selector.select()
    for port in ports:
        port.disarm()
        for frame in port.recv_many(timeout=0):
            print(f"{port.name}: {len(frame)} bytes", flush=True)
            left -= 1
