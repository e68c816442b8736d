"""Cost of processes on this machine: real processes, and output of `perf`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ringroad_lab.cost import Cost, ProcessCosts, read_cycles
from ringroad_lab.errors import HostError
from ringroad_lab.facts.processor import counter_facts
from ringroad_lab.host.local import LocalHost
from ringroad_lab.sandbox.huge_pages import POOL, huge_pages


@pytest.fixture
def host() -> Iterator[LocalHost]:
    made = LocalHost()
    yield made
    made.close()


def test_a_busy_process_costs_time_and_a_waiting_one_does_not(host: LocalHost) -> None:
    busy = host.start("busy", ["python3", "-c", "while True: pass"])
    quiet = host.start("quiet", ["sleep", "60"])
    # The interval ends when the busy process has run; how long that takes depends on the machine.
    meter = ProcessCosts(host, [busy])

    def until_it_ran() -> None:
        for _ in range(10_000):
            if meter.idle(0.01).run_s:
                return

    _, cost = meter.over(until_it_ran)
    assert cost.run_s is not None
    assert cost.run_s > 0
    assert cost.wait_s is not None
    assert cost.wait_s >= 0
    assert cost.memory_bytes is not None
    assert cost.memory_bytes > 1 << 20
    waiting = ProcessCosts(host, [quiet]).idle(0.05)
    assert waiting.run_s == 0.0
    assert waiting.wait_ratio == 0.0


def test_all_processes_and_threads_count_together(host: LocalHost) -> None:
    processes = [host.start("sleep", ["sleep", "60"]) for _ in range(2)]
    one, both = (ProcessCosts(host, some).idle(0.01).memory_bytes for some in (processes[:1], processes))
    assert one is not None
    assert both is not None
    assert both > one


@pytest.mark.skipif(os.geteuid() != 0 or not POOL.exists(), reason="needs root and a pool of 2 MiB pages")
def test_huge_pages_count_as_memory(host: LocalHost) -> None:
    # MAP_HUGETLB (mman.h) has no name in Python. A page counts once it is written.
    mapping = "mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)"
    program = f"import mmap, signal; pages = {mapping}; pages[:: 2 << 20] = bytes(32); print('written', flush=True); signal.pause()"
    with ExitStack() as reserves:
        # Any program may take free pages of the pool before this one does: then more are reserved.
        for _ in range(5):
            reserves.enter_context(huge_pages(64))
            process = host.start("pages", ["python3", "-c", program])
            silence = process.why_silent("written", 30)
            if silence is None:
                break
        assert silence is None
        memory_bytes = ProcessCosts(host, [process]).idle(0.01).memory_bytes
        process.stop()
    assert memory_bytes is not None
    assert memory_bytes > 64 << 20


def test_a_kernel_device_has_only_kernel_time(host: LocalHost) -> None:
    cost = ProcessCosts(host, [], counts_cycles=True).idle(0.01)
    assert (cost.run_s, cost.wait_s, cost.cycles, cost.memory_bytes, cost.processors, cost.wait_ratio) == (None,) * 6
    assert cost.kernel_s is not None
    assert cost.kernel_s >= 0


def test_an_ended_process_has_no_cost(host: LocalHost) -> None:
    process = host.start("sleep", ["sleep", "60"])
    process.stop()
    with pytest.raises(HostError, match="sleep has no processor time"):
        ProcessCosts(host, [process]).idle(0.01)


def test_cycles_are_counted_if_the_machine_can(host: LocalHost) -> None:
    can = counter_facts(host)["processor cycles"] == "yes"
    busy = host.start("busy", ["python3", "-c", "while True: pass"])
    cost = ProcessCosts(host, [busy], counts_cycles=True).idle(0.1)
    assert (cost.cycles is not None) == can


def test_cycles_are_those_that_perf_reports_at_the_end_of_each_interval(
    host: LocalHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    perf = tmp_path / "perf"
    lines = ("#!/bin/sh", "trap 'echo 5000,,cycles,1,100.00,,; exit 0' ALRM", "echo Events enabled", "sleep 60 & wait")
    perf.write_text("\n".join((*lines, "")))
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    meter = ProcessCosts(host, [host.start("sleep", ["sleep", "60"])], counts_cycles=True)
    assert [meter.idle(0.01).cycles for _ in range(2)] == [5000.0, 5000.0]
    # A perf that ends at once, for example if counting is not allowed, does not fail the measurement.
    perf.write_text("#!/bin/sh\necho Access is limited\nexit 255\n")
    assert meter.idle(0.01).cycles is None


@pytest.mark.parametrize(
    ("output", "cycles"),
    [
        ("Events disabled\nEvents enabled\n123456,,cycles,1000,100.00,,\n", 123456.0),
        ("77,,cycles:u,1000,100.00,,\n", 77.0),
        ("<not supported>,,cycles,0,100.00,,\n", None),
        ("<not counted>,,cycles,0,0.00,,\n", None),
        ("Error: Access to performance monitoring is limited.\n", None),
        ("", None),
    ],
)
def test_the_output_of_perf_is_parsed(output: str, cycles: float | None) -> None:
    assert read_cycles(output) == cycles


def test_shares_of_an_interval() -> None:
    cost = Cost(elapsed_s=2.0, run_s=1.0, wait_s=3.0)
    assert cost.processors == 0.5
    assert cost.wait_ratio == 0.75
