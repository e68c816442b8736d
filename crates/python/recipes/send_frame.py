"""Send one frame: python3 send_frame.py vale0:a"""

import sys

import ringroad

EVERYBODY = bytes.fromhex("ffffffffffff")
MYSELF = bytes.fromhex("020000000001")
EXPERIMENT = bytes.fromhex("88b5")

with ringroad.Port(sys.argv[1]) as port:
    port.send(EVERYBODY + MYSELF + EXPERIMENT + b"hello".ljust(46, b"\0"))
