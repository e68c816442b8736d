"""Numbered messages and their answers: ping at a fixed rate, and the counters of both kernels.

The guest's kernel answers: nothing of the guest has to be scheduled for that. ping compares the payload of each answer. It cannot tell
whether a message or its answer was lost; the counters of the two kernels do.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import GeneratorError, GuestError
from ringroad_lab.host.interface import Process
from ringroad_lab.message_size.namespace_station import NamespaceStation
from ringroad_lab.message_size.station import Station
from ringroad_lab.message_size.sweep import PING

_END_S = 10.0
_ANSWER = re.compile(r"^\[(\d{1,12}\.\d{1,9})\] \d+ bytes from \S+ icmp_seq=\d+ .*$", re.MULTILINE)
_DAMAGED = re.compile("wrong data byte|BAD CHECKSUM|truncated")


@dataclass(frozen=True)
class EchoCounts:
    """A kernel's counters of ICMP echo messages (/proc/net/snmp)."""

    requests_received: int
    replies_sent: int
    requests_sent: int
    replies_received: int

    def since(self, before: EchoCounts) -> EchoCounts:
        """Return the growth."""
        return EchoCounts(
            self.requests_received - before.requests_received,
            self.replies_sent - before.replies_sent,
            self.requests_sent - before.requests_sent,
            self.replies_received - before.replies_received,
        )


def echo_counts(station: Station) -> EchoCounts:
    """Read the counters of a station.

    Raises:
        GuestError: its kernel does not have them.
        HostError: as for any host.
    """
    text = station.run(["cat", "/proc/net/snmp"]).stdout
    rows = [line.split()[1:] for line in text.splitlines() if line.startswith("Icmp:")]
    try:
        names, values = rows
        found = dict(zip(names, map(int, values), strict=True))
        return EchoCounts(found["InEchos"], found["OutEchoReps"], found["OutEchos"], found["InEchoReps"])
    except (ValueError, KeyError) as error:
        raise GuestError(f"{station.name}: its kernel does not count echo messages ({error!r})") from error


@dataclass(frozen=True)
class Echoes:
    """The answers that arrived."""

    arrived_at: tuple[float, ...]
    """Moments, s, in order."""
    duplicates: int
    damaged: int
    """Answers with other content than the message had."""

    @property
    def longest_gap_s(self) -> float:
        """The longest time between two answers."""
        return max(after - before for before, after in pairwise(self.arrived_at))

    def rates(self, bin_s: float) -> tuple[tuple[float, float], ...]:
        """Return the answers per second in each part of the time, from the first answer on."""
        first = self.arrived_at[0]
        bins = Counter(int((moment - first) / bin_s) for moment in self.arrived_at)
        return tuple((number * bin_s, bins[number] / bin_s) for number in range(max(bins) + 1))


def parse_ping(text: str) -> Echoes:
    """Parse the output of `ping -D`.

    Raises:
        GeneratorError: fewer than two answers arrived.
    """
    answers = list(_ANSWER.finditer(text))
    duplicates = sum("(DUP!)" in answer[0] for answer in answers)
    moments = tuple(sorted(float(answer[1]) for answer in answers))
    if len(moments) < 2 or moments[0] == moments[-1]:
        raise GeneratorError(f"ping: {len(moments)} messages were answered: {text.strip()[-500:] or 'no output'}")
    return Echoes(moments, duplicates, len(_DAMAGED.findall(text)))


class EchoLoad:
    """A station that sends messages at a fixed rate."""

    def __init__(self, station: NamespaceStation, address: str, *, messages_per_s: int, message_bytes: int) -> None:
        """Take the sender, and the address of the station that answers."""
        self._station = station
        self._log = station.folder / f"{station.name}-ping.log"
        pace = ["-i", f"{1 / messages_per_s:.6f}", "-s", str(message_bytes)]
        self._argv = ["sh", "-c", 'exec "$@" >"$0" 2>&1', str(self._log), PING[0], "-n", "-D", *pace, address]
        self._process: Process | None = None

    def start(self) -> None:
        """Begin to send.

        Raises:
            HostError: as for any host.
        """
        self._process = self._station.start_program("ping", self._argv)

    def end(self) -> Echoes:
        """End the load as Ctrl-C does, and return the answers.

        Raises:
            GeneratorError: ping failed.
            HostError: as for any host.
        """
        process = self._process
        assert process is not None
        self._station.host.run(["kill", "-INT", str(process.pid)], check=False)
        has_ended = wait_until(lambda: not process.is_running(), _END_S)
        text = self._station.host.read_text(self._log)
        if not has_ended:
            raise GeneratorError(f"ping does not end: {text.strip()[-500:]}")
        return parse_ping(text)

    def stop(self) -> None:
        """Stop the load at once. Can be called any number of times."""
        if self._process is not None:
            self._process.stop()
