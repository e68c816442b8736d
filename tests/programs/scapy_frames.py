"""Sends the frames of a capture from one device and sniffs them at another: scapy_frames.py FILE FROM TO."""

import sys

from scapy.all import AsyncSniffer, conf, raw, rdpcap, sendp

conf.use_pcap = True
conf.verb = 0
frames = rdpcap(sys.argv[1])
sniffer = AsyncSniffer(
    iface=sys.argv[3],
    count=len(frames),
    timeout=120,
    # Sending begins when the device is open.
    started_callback=lambda: sendp(frames, iface=sys.argv[2]),
)
sniffer.start()
sniffer.join()
got = [raw(frame) for frame in sniffer.results]
if got != [raw(frame) for frame in frames]:
    sys.exit(f"{len(got)} of {len(frames)} frames arrived, or others")
print(f"{len(got)} frames, the same")
