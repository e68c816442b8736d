"""NetPIPE (NPtcp) between two stations: blocks go back and forth over TCP, and the one-way time is half the round-trip time."""

from __future__ import annotations

from ringroad_lab.errors import GeneratorError, HostError
from ringroad_lab.message_size.points import Point
from ringroad_lab.message_size.station import Station

# NetPIPE's default port.
PORT = 5002


def measure_by_netpipe(sender: Station, receiver: Station, *, max_bytes: int, perturbation_bytes: int, timeout_s: float) -> list[Point]:
    """Run NPtcp with its own choice of block sizes, from 1 byte up.

    Args:
        sender: Station that measures.
        receiver: Station that returns the blocks.
        max_bytes: Largest block.
        perturbation_bytes: Distance of additional sizes below and above each size; 0: none.
        timeout_s: Time limit.

    Raises:
        GeneratorError: NetPIPE failed or timed out, or its file is invalid.
        GuestError: the receiver does not listen.
    """
    bounds = ["-u", str(max_bytes), "-p", str(perturbation_bytes)]
    file = str(sender.folder / "netpipe.out")
    server = receiver.serve("NPtcp receiver", ["NPtcp", *bounds], "tcp", PORT)
    try:
        sender.run(["NPtcp", "-h", receiver.address, *bounds, "-o", file], timeout_s=timeout_s)
        text = sender.run(["cat", file]).stdout
    except HostError as error:
        raise GeneratorError(f"NetPIPE from {sender.name} to {receiver.name}: {error}") from error
    finally:
        server.stop()
    return parse_netpipe(text)


def parse_netpipe(text: str) -> list[Point]:
    """Parse NetPIPE's file: one line for each block with its bytes, Mb/s, and one-way seconds.

    Raises:
        GeneratorError: the file is invalid or empty.
    """
    points = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            size, _, seconds = line.split()
            points.append(Point(int(size), float(seconds) * 1e9))
        except ValueError as error:
            raise GeneratorError(f"line {number} of NetPIPE's file is not `bytes Mb/s seconds`: {line[:100]!r}") from error
        if not (points[-1].size_bytes > 0 and 0 < points[-1].latency_ns < float("inf")):
            raise GeneratorError(f"line {number} of NetPIPE's file has an invalid size or time: {line[:100]!r}")
    if not points:
        raise GeneratorError("NetPIPE's file is empty: no block returned")
    return points
