"""Adds to the report of a failed test what the machine did while the test ran: a busy machine shows other defects than an idle one."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import psutil
import pytest

_BEGIN = pytest.StashKey[tuple[float, float, float]]()


def _processor_seconds() -> tuple[float, float, float]:
    """Return the processors' seconds since boot: all, idle, stolen."""
    times = psutil.cpu_times()
    return sum(times[:8]), times.idle + times.iowait, times.steal


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Remember the beginning of the test."""
    item.stash[_BEGIN] = _processor_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Describe the machine in the report of a failure."""
    report: pytest.TestReport = yield
    if report.failed:
        begin, end = item.stash[_BEGIN], _processor_seconds()
        all_s, idle_s, stolen_s = (end[at] - begin[at] for at in range(3))
        load = Path("/proc/loadavg").read_text(encoding="ascii").split()[0]
        text = (
            f"processors {1 - idle_s / max(all_s, 0.01):.0%} busy, {stolen_s / max(all_s, 0.01):.0%} stolen; "
            f"load {load}; {psutil.virtual_memory().available >> 20} MiB free"
        )
        report.sections.append(("the machine meanwhile", text))
    return report
