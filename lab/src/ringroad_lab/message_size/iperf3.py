"""A load of TCP between two stations, by iperf3."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ringroad_lab.errors import GeneratorError, HostError
from ringroad_lab.message_size.station import Station
from ringroad_lab.method.tcp_load import TcpLoadSettings

PROGRAM = ("iperf3", "iperf3")
"""Program, and its Debian package."""
PORT = 5201
# Time limit in addition to the measurement: an emulated guest on a busy machine is slow.
_OVERHEAD_S = 60.0
# Ends of the names of iperf3's sums, by direction; --bidir has both.
_DIRECTIONS = {"1_to_2": "", "2_to_1": "_bidir_reverse"}


@dataclass(frozen=True)
class TcpLoad:
    """What TCP carried."""

    throughput_bps: dict[str, float]
    """Payload that arrived, bit/s, by direction."""
    retransmissions: int
    """Segments that were sent again, in all directions."""


def measure_by_iperf3(sender: Station, receiver: Station, settings: TcpLoadSettings) -> TcpLoad:
    """Load with TCP from the first station to the second one, and back if the settings have it.

    Raises:
        GeneratorError: iperf3 failed.
        GuestError: the receiver does not listen.
    """
    server = receiver.serve("iperf3 server", ["iperf3", "--server", "--bind", receiver.address, "--port", str(PORT)], "tcp", PORT)
    times = ["--time", str(settings.duration_s), "--omit", str(settings.omit_s), "--interval", "0"]
    both = ["--bidir"] if settings.both_directions else []
    load = ["--parallel", str(settings.streams), *times, *both]
    argv = ["iperf3", "--client", receiver.address, "--port", str(PORT), "--json", *load]
    try:
        # Its reason for a failure is in the output.
        output = sender.run(argv, timeout_s=settings.duration_s + settings.omit_s + _OVERHEAD_S, check=False).stdout
    except HostError as error:
        raise GeneratorError(f"iperf3 from {sender.name}: {error}") from error
    finally:
        server.stop()
    return parse_iperf3(output, both_directions=settings.both_directions)


def parse_iperf3(text: str, *, both_directions: bool) -> TcpLoad:
    """Parse the output of `iperf3 --json`.

    Raises:
        GeneratorError: iperf3 reports an error, or the output has no rates.
    """
    try:
        result = json.loads(text)
        if error := result.get("error"):
            raise GeneratorError(f"iperf3: {str(error)[:500]}")
        end = result["end"]
        names = _DIRECTIONS if both_directions else {"1_to_2": ""}
        rates = {name: _number(end[f"sum_received{ending}"]["bits_per_second"]) for name, ending in names.items()}
        sent_again = sum(int(_number(end[f"sum_sent{ending}"]["retransmits"])) for ending in names.values())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise GeneratorError(f"iperf3 reported no rates ({error!r}): {text.strip()[-500:] or 'no output'}") from error
    if not all(rates.values()):
        raise GeneratorError("iperf3: no data arrived")
    return TcpLoad(rates, sent_again)


def _number(value: Any) -> float:  # noqa: ANN401
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        raise ValueError(f"{value!r} is not a rate")
    return float(value)
