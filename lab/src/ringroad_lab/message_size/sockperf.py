"""sockperf's ping-pong between two stations, over UDP or TCP: one message in flight at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Literal

from ringroad_lab.errors import GeneratorError, HostError
from ringroad_lab.message_size.points import Point
from ringroad_lab.message_size.station import Station
from ringroad_lab.message_size.watch import SweepWatch

PORT = 11111
# Each message contains sockperf's header (sockperf(1): --msg-size).
MIN_BYTES = 14
MAX_BYTES = 65507
"""Largest message of UDP over IPv4."""
# Time limit in addition to the measurement: some seconds, and many times that in an emulated guest on a busy machine.
_OVERHEAD_S = 60.0
_MORE_TRIES = 2
_NO_ANSWERS = "No valid observations found"
_MEDIAN = re.compile(r"percentile 50\.000 =\s*([\d.]+)")
_COUNTS = re.compile(r"\[Valid Duration\].*SentMessages=(\d+); ReceivedMessages=(\d+)")


def measure_by_sockperf(
    sender: Station,
    receiver: Station,
    protocol: Literal["udp", "tcp"],
    sizes_bytes: Sequence[int],
    *,
    seconds_each: int,
    watch: SweepWatch,
) -> list[Point]:
    """Measure each message size for some seconds, as a part of the sweep.

    Raises:
        GeneratorError: sockperf failed, or no message returned.
        GuestError: the receiver does not listen.
    """
    tcp = ["--tcp"] if protocol == "tcp" else []
    where = ["-i", receiver.address, "-p", str(PORT), *tcp]
    server = receiver.serve("sockperf server", ["sockperf", "server", *where], protocol, PORT)
    try:
        return [
            Point(size, watch.over(f"sockperf-{protocol}, {size} bytes", partial(_measure, sender, where, size, seconds_each)))
            for size in sizes_bytes
        ]
    finally:
        server.stop()


def _measure(sender: Station, where: Sequence[str], size: int, seconds: int) -> float:
    output = _ping_pong(sender, where, size, seconds)
    # A datagram that is lost stops sockperf's ping-pong, and a busy machine may not have answered when the time is over.
    for _ in range(_MORE_TRIES):
        if _NO_ANSWERS not in output:
            break
        seconds *= 2
        output = _ping_pong(sender, where, size, seconds)
    return parse_sockperf(output)


def _ping_pong(sender: Station, where: Sequence[str], size: int, seconds: int) -> str:
    argv = ["sockperf", "ping-pong", *where, "-m", str(size), "-t", str(seconds)]
    try:
        return sender.run(argv, timeout_s=seconds + _OVERHEAD_S).stdout
    except HostError as error:
        raise GeneratorError(f"sockperf from {sender.name}, {size} bytes: {error}") from error


def parse_sockperf(text: str) -> float:
    """Parse the median one-way latency, ns, from the output of sockperf's ping-pong.

    Raises:
        GeneratorError: the output has no latency, or no message returned.
    """
    median, counts = _MEDIAN.search(text), _COUNTS.search(text)
    if median is None or counts is None:
        raise GeneratorError(f"sockperf reported no latency: {text.strip()[-500:] or 'no output'}")
    if int(counts[2]) == 0 or float(median[1]) <= 0:
        raise GeneratorError(f"sockperf: none of {counts[1]} messages returned")
    return float(median[1]) * 1000
