"""What testpmd prints of its cycles, read. The texts are of version 22.11."""

from __future__ import annotations

import pytest

from ringroad_lab.dut.testpmd import busy_time_s

NOTHING_PASSED = "testpmd> show fwd stats all\n  +++++++++++++++ Accumulated forward statistics for all ports+++++++++++++++\n"
CYCLES = "  CPU cycles/packet=%.2f (total cycles=%d / total RX packets=%d) at 2450 MHz Clock\n"


def test_the_last_answer_counts() -> None:
    said = NOTHING_PASSED + CYCLES % (245.0, 245_000, 1_000) + CYCLES % (122.5, 4_900_000_000, 40_000_000)
    assert busy_time_s(said) == pytest.approx(2.0)


def test_no_time_is_told_before_frames_passed() -> None:
    assert busy_time_s(NOTHING_PASSED) == 0.0
