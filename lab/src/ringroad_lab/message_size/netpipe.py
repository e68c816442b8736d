"""NetPIPE (NPtcp) between two stations: blocks bounce to and fro over TCP, and the time of one way is half that of both."""

from __future__ import annotations

from ringroad_lab.errors import GeneratorError, HostError
from ringroad_lab.message_size.points import Point
from ringroad_lab.message_size.station import Station

# NetPIPE's own.
PORT = 5002


def measure_by_netpipe(sender: Station, receiver: Station, *, max_bytes: int, perturbation_bytes: int, timeout_s: float) -> list[Point]:
    """Run NPtcp with its own choice of block sizes, from 1 byte up.

    Args:
        sender: Who measures.
        receiver: Who answers.
        max_bytes: Greatest block.
        perturbation_bytes: Sizes so far below and above each are measured too; 0: none.
        timeout_s: When to give up.

    Raises:
        GeneratorError: it ended with an error or not at all, or its file holds something else than it should.
        GuestError: the receiver does not listen.
    """
    bounds = ["-u", str(max_bytes), "-p", str(perturbation_bytes)]
    file = str(sender.folder / "netpipe.out")
    answering = receiver.serve("NPtcp receiver", ["NPtcp", *bounds], "tcp", PORT)
    try:
        sender.run(["NPtcp", "-h", receiver.address, *bounds, "-o", file], timeout_s=timeout_s)
        text = sender.run(["cat", file]).stdout
    except HostError as error:
        raise GeneratorError(f"NetPIPE from {sender.name} to {receiver.name}: {error}") from error
    finally:
        answering.stop()
    return parse_netpipe(text)


def parse_netpipe(text: str) -> list[Point]:
    """Read NetPIPE's file: a line for each block with its bytes, Mb/s, and seconds of one way.

    Raises:
        GeneratorError: it is something else, or empty.
    """
    points = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            size, _, seconds = line.split()
            points.append(Point(int(size), float(seconds) * 1e9))
        except ValueError as error:
            raise GeneratorError(f"line {number} of NetPIPE's file is not `bytes Mb/s seconds`: {line[:100]!r}") from error
        if not (points[-1].size_bytes > 0 and 0 < points[-1].latency_ns < float("inf")):
            raise GeneratorError(f"line {number} of NetPIPE's file has no such block or time: {line[:100]!r}")
    if not points:
        raise GeneratorError("NetPIPE's file is empty: no block came back")
    return points
