"""Parsers of testpmd's output of cycles and drops. The texts are of version 22.11."""

from __future__ import annotations

import pytest

from ringroad_lab.dut.testpmd import busy_time_s, dropped_by_port, without_answers

NOTHING_PASSED = "testpmd> show fwd stats all\n  +++++++++++++++ Accumulated forward statistics for all ports+++++++++++++++\n"
CYCLES = "  CPU cycles/packet=%.2f (total cycles=%d / total RX packets=%d) at 2450 MHz Clock\n"


def test_the_latest_answer_is_used() -> None:
    output = NOTHING_PASSED + CYCLES % (245.0, 245_000, 1_000) + CYCLES % (122.5, 4_900_000_000, 40_000_000)
    assert busy_time_s(output) == pytest.approx(2.0)


def test_no_time_is_reported_before_frames_pass() -> None:
    assert busy_time_s(NOTHING_PASSED) == 0.0


def test_frames_dropped_at_a_full_ring_are_reported_by_port() -> None:
    port = "  ---------------------- Forward statistics for port %d  ----------------------\n"
    counts = "  RX-packets: 9  RX-dropped: 0  RX-total: 9\n  TX-packets: 7              TX-dropped: %d             TX-total: 9\n"
    total = "  +++++++++++++++ Accumulated forward statistics for all ports+++++++++++++++\n"
    output = port % 0 + counts % 1 + port % 0 + counts % 0 + port % 1 + counts % 302 + total + counts % 302
    assert dropped_by_port(output) == {0: 0, 1: 302}
    assert dropped_by_port(NOTHING_PASSED) == {}


def test_the_log_excludes_answers_to_queries() -> None:
    answer = "show fwd stats all\n  TX-packets: 7\ntestpmd> asked-%d.\nCommand not found\ntestpmd> "
    output = "EAL: started\ntestpmd> " + answer % 1 + answer % 2 + "Port 0: link state change event\n"
    assert without_answers(output) == "EAL: started\ntestpmd> Port 0: link state change event\n"
