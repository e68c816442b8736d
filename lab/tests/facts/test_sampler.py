"""The sampler: real processes, and fabricated times that this machine may not show."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import namedtuple
from collections.abc import Iterator
from statistics import median

import psutil
import pytest

from ringroad_lab.deadline import wait_until
from ringroad_lab.facts import periodic
from ringroad_lab.facts.periodic import MACHINE
from ringroad_lab.facts.sampler import Sampler

BUSY = (
    "import threading\ndef spin():\n  while True: pass\nthreading.Thread(target=spin, daemon=True).start()\nprint('up', flush=True)\nspin()"
)


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
        process.kill()


def points(sampler: Sampler, subject: str, name: str) -> list[float]:
    found = [series for series in sampler.series() if series.subject == subject and series.name == name]
    return [value for series in found for _, value in series.points]


def test_a_busy_process_is_seen_with_its_threads_and_memory(busy: subprocess.Popen[str]) -> None:
    subject = f"spinner ({busy.pid})"
    with Sampler({busy.pid: "spinner"}, interval_s=0.05) as sampler:
        assert wait_until(
            lambda: sum(points(sampler, subject, "user time")) > 0 and len(points(sampler, subject, "resident memory")) > 3, 20
        )
    assert min(points(sampler, subject, "user time")) >= 0
    # In processors. A process that is preempted between reading two clocks may seem to use more.
    assert median(points(sampler, subject, "user time")) < 3
    assert min(points(sampler, subject, "resident memory")) > 1 << 20
    threads = {series.subject for series in sampler.series() if series.name == "processor time"}
    assert len(threads) == 2
    assert all(thread.startswith(f"{subject}, thread ") and "?" not in thread for thread in threads)
    assert {series.unit for series in sampler.series() if series.subject == MACHINE} == {"ratio"}
    assert all(0 <= value <= 1 for series in sampler.series() if series.subject == MACHINE for _, value in series.points)


def test_times_only_grow(busy: subprocess.Popen[str]) -> None:
    with Sampler({busy.pid: "spinner"}, interval_s=0.02) as sampler:
        assert wait_until(lambda: len(points(sampler, f"spinner ({busy.pid})", "resident memory")) > 5, 20)
    for series in sampler.series():
        times = [time for time, _ in series.points]
        assert times == sorted(times)


def test_the_series_of_a_process_ends_with_it(busy: subprocess.Popen[str]) -> None:
    subject = f"spinner ({busy.pid})"
    with Sampler(interval_s=0.02) as sampler:
        sampler.watch(busy.pid, "spinner")
        assert wait_until(lambda: len(points(sampler, subject, "resident memory")) > 2, 20)
        busy.kill()
        busy.wait()
        kept = len(points(sampler, subject, "resident memory"))
        after = len(points(sampler, MACHINE, "busy time")) + 3
        assert wait_until(lambda: len(points(sampler, MACHINE, "busy time")) > after, 20)
        assert len(points(sampler, subject, "resident memory")) <= kept + 1


def test_a_missing_process_is_not_watched() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    with Sampler({gone.pid: "gone"}, interval_s=0.02) as sampler:
        assert wait_until(lambda: len(points(sampler, MACHINE, "busy time")) > 1, 20)
    assert {series.subject.split()[0] for series in sampler.series()} <= {MACHINE, "processor"}


def test_the_sampler_stops_after_an_error_and_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(RuntimeError, match="of the run"), Sampler(interval_s=3600):
        raise RuntimeError("of the run")
    assert threading.active_count() == before


Times = namedtuple("Times", "user system idle iowait steal guest")


def test_steal_time_causes_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    # A fabricated machine that loses 10 s of the first 100 s, then nothing.
    samples = iter([Times(0, 0, 0, 0, 0, 0), Times(40, 10, 40, 0, 10, 40), *(Times(80 + n, 20, 80, 0, 10, 80) for n in range(10_000))])
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(samples))
    with Sampler(interval_s=0.01) as sampler:
        assert wait_until(lambda: len(points(sampler, MACHINE, "steal time")) > 2, 20)
    assert points(sampler, MACHINE, "steal time")[:2] == pytest.approx([0.1, 0.0])
    assert points(sampler, MACHINE, "busy time")[0] == pytest.approx(0.5)
    (warning,) = sampler.warnings()
    assert warning.startswith("The hypervisor gave more than 2% of the processors' time in 1 of ")
    assert "10% at most" in warning


def test_no_warning_without_steal_time(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = iter(Times(n, 0, n, 0, 0, 0) for n in range(10_000))
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(samples))
    with Sampler(interval_s=0.01) as sampler:
        assert wait_until(lambda: len(points(sampler, MACHINE, "steal time")) > 2, 20)
    assert sampler.warnings() == ()


def test_a_long_run_keeps_a_bounded_number_of_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic, "MOST_POINTS", 10)
    calls = 0

    def count() -> Times:
        nonlocal calls
        calls += 1
        return Times(calls, 0, calls, 0, 0, 0)

    monkeypatch.setattr(psutil, "cpu_times", count)
    with Sampler(interval_s=0.001) as sampler:
        assert wait_until(lambda: calls > 40, 20)
    (busy,) = [series for series in sampler.series() if series.name == "busy time"]
    times = [time for time, _ in busy.points]
    assert len(times) <= 10
    assert times == sorted(times)
    # The points cover the whole time.
    assert times[-1] - times[0] > 40 * 0.001 / 2
