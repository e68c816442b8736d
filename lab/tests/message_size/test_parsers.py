"""Parsing of the output of NetPIPE and sockperf, and errors for invalid output."""

from __future__ import annotations

from unittest.mock import create_autospec

import pytest

from ringroad_lab.errors import GeneratorError
from ringroad_lab.facts.witness import Witness
from ringroad_lab.host.interface import Completed
from ringroad_lab.message_size.netpipe import parse_netpipe
from ringroad_lab.message_size.sockperf import measure_by_sockperf, parse_sockperf
from ringroad_lab.message_size.station import Station
from ringroad_lab.message_size.watch import SweepWatch
from ringroad_lab.method.interface import DisturbedRepeats
from ringroad_lab.trial import DisturbanceLimits

SOCKPERF = """\
sockperf: [Valid Duration] RunTime=0.549 sec; SentMessages=6728; ReceivedMessages=6728
sockperf: Summary: Latency is 40.746 usec
sockperf: ---> percentile 50.000 =    9.743
"""


def unwatched() -> SweepWatch:
    """A watch of no processor, which sees no disturbance."""
    return SweepWatch(Witness(frozenset(), 0.05), DisturbedRepeats(DisturbanceLimits()))


def test_netpipe_reports_size_and_one_way_time() -> None:
    points = parse_netpipe("       1 0.669430   0.00001140\n     64 11.482862   0.00004252\n")
    assert [point.size_bytes for point in points] == [1, 64]
    assert [point.latency_ns for point in points] == pytest.approx([11400, 42520])
    assert points[1].throughput_bps == pytest.approx(12.04e6, rel=0.01)


@pytest.mark.parametrize("text", ["", "1 2\n", "a b c\n", "0 1 1\n", "1 1 0\n", "1 1 inf\n", "1 1 nan\n"])
def test_an_invalid_netpipe_file_is_rejected(text: str) -> None:
    with pytest.raises(GeneratorError, match="NetPIPE"):
        parse_netpipe(text)


def test_sockperf_reports_the_median() -> None:
    assert parse_sockperf(SOCKPERF) == pytest.approx(9743)


@pytest.mark.parametrize(
    "text", ["", "no such thing", SOCKPERF.replace("ReceivedMessages=6728", "ReceivedMessages=0"), SOCKPERF.replace("9.743", "0.000")]
)
def test_output_without_a_response_is_never_a_latency(text: str) -> None:
    with pytest.raises(GeneratorError, match="sockperf"):
        parse_sockperf(text)


@pytest.mark.parametrize(("lost", "seconds"), [(0, ["1"]), (1, ["1", "2"]), (2, ["1", "2", "4"])])
def test_a_ping_pong_whose_message_was_lost_is_repeated_for_longer(lost: int, seconds: list[str]) -> None:
    outputs = ["sockperf: No valid observations found. Try tune parameters: --time/--mps/--reply-every\n"] * lost + [SOCKPERF]
    sender, receiver = (create_autospec(Station, instance=True, address="192.0.2.1") for _ in range(2))
    sender.run.side_effect = [Completed((), 0, output, "") for output in outputs]
    (point,) = measure_by_sockperf(sender, receiver, "udp", [64], seconds_each=1, watch=unwatched())
    assert point.latency_ns == pytest.approx(9743)
    assert [call.args[0][-1] for call in sender.run.call_args_list] == seconds


def test_a_ping_pong_without_any_answer_fails() -> None:
    sender, receiver = (create_autospec(Station, instance=True, address="192.0.2.1") for _ in range(2))
    sender.run.return_value = Completed((), 0, "sockperf: No valid observations found.", "")
    with pytest.raises(GeneratorError, match="No valid observations"):
        measure_by_sockperf(sender, receiver, "udp", [64], seconds_each=1, watch=unwatched())
    receiver.serve.return_value.stop.assert_called_once()
