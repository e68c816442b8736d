"""Huge pages: the accounting on a pool of plain files, and the kernel's own pool after a lab is killed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ringroad_lab.deadline import wait_until
from ringroad_lab.errors import SandboxError
from ringroad_lab.sandbox.huge_pages import POOL, await_huge_pages, huge_pages


def simulated_pool(folder: Path, total: int, free: int, surplus: int = 0, reserved: int = 0) -> Path:
    """Create files in place of the kernel's pool: numbers that change only when written."""
    for name, value in {"nr": total, "free": free, "resv": reserved, "surplus": surplus}.items():
        (folder / f"{name}_hugepages").write_text(f"{value}\n")
    return folder


def number(pool: Path) -> int:
    return int((pool / "nr_hugepages").read_text())


def test_free_pages_are_not_requested_again(tmp_path: Path) -> None:
    pool = simulated_pool(tmp_path, total=100, free=50)
    with huge_pages(100, pool):
        assert number(pool) == 100
    assert number(pool) == 100


def test_too_few_pages_are_an_error_and_are_released(tmp_path: Path) -> None:
    pool = simulated_pool(tmp_path, total=100, free=10)
    with (
        pytest.raises(SandboxError, match="cannot reserve 101 MiB in huge pages: the kernel has memory for 20 MiB"),
        huge_pages(101, pool, 0),
    ):
        pytest.fail("there are no such pages")
    assert number(pool) == 100


def test_pages_added_by_others_in_the_meantime_stay(tmp_path: Path) -> None:
    pool = simulated_pool(tmp_path, total=4, free=4)
    source = (
        "import sys, pathlib\nfrom ringroad_lab.sandbox import huge_pages as module\n"
        # The simulation provides the pages as soon as they are requested.
        "read = module._read\n"
        "module._read = lambda file: 4 + read(file.parent / 'nr_hugepages') - 4 if file.name == 'free_hugepages' else read(file)\n"
        "sys.exit(module.main(sys.argv[1:]))"
    )
    keeper = subprocess.Popen(
        [sys.executable, "-c", source, "10", str(pool), "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    with keeper.stdin, keeper.stdout:
        assert keeper.stdout.readline() == "ready\n"
        assert number(pool) == 10
        (pool / "nr_hugepages").write_text("17\n")
        keeper.stdin.close()
        assert keeper.wait() == 0
    assert number(pool) == 11


def test_mapped_pages_are_not_free(tmp_path: Path) -> None:
    pool = simulated_pool(tmp_path, total=100, free=60, reserved=20)
    with pytest.raises(SandboxError, match="the kernel has memory for 80 MiB"), huge_pages(120, pool, 0):
        pytest.fail("there are 40")
    with huge_pages(80, pool):
        assert number(pool) == 100


def test_pages_that_others_took_are_requested_again(tmp_path: Path) -> None:
    pool = simulated_pool(tmp_path, total=10, free=10)
    with huge_pages(20, pool) as request_again:
        await_huge_pages(20, lambda: pytest.fail("all are free"), pool)
        (pool / "free_hugepages").write_text("4\n")

        def ask() -> None:
            request_again()
            # The simulation provides the pages that the keeper requests from the kernel.
            assert wait_until(lambda: number(pool) == 16, 30)
            (pool / "free_hugepages").write_text("10\n")

        await_huge_pages(20, ask, pool)
    assert number(pool) == 10


def test_unavailable_pages_are_counted(tmp_path: Path) -> None:
    pool = simulated_pool(tmp_path, total=10, free=4)
    message = "6 huge pages of 2 MiB are missing: 10 are needed, 4 of 10 are free.* end programs that hold huge pages"
    with pytest.raises(SandboxError, match=message):
        await_huge_pages(20, lambda: None, pool, timeout_s=0.05)


def test_a_machine_without_huge_pages_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="No such file or directory"), huge_pages(2, tmp_path / "absent"):
        pytest.fail("there is no pool")


@pytest.mark.skipif(os.geteuid() != 0 or not POOL.exists(), reason="needs root and a pool of 2 MiB pages")
def test_a_killed_lab_releases_its_pages() -> None:
    source = (
        "import sys, time\nfrom ringroad_lab.sandbox.huge_pages import POOL, huge_pages\n"
        "free = int((POOL / 'free_hugepages').read_text())\n"
        "with huge_pages(2 * (free + 3)):\n print(free, (POOL / 'free_hugepages').read_text(), flush=True)\n time.sleep(100)\n"
    )
    with alone_with_the_pool():
        before = number(POOL)
        kill_a_lab_with_pages(source)
        assert wait_until(lambda: number(POOL) == before, 30)


@contextmanager
def alone_with_the_pool() -> Iterator[None]:
    """Prevent other tests on the machine from changing the kernel's only pool."""
    with (Path(tempfile.gettempdir()) / "ringroad-lab-tests-huge-pages.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def kill_a_lab_with_pages(source: str) -> None:
    lab = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
    assert lab.stdout is not None
    with lab.stdout:
        free, now_free = (int(word) for word in lab.stdout.readline().split())
        assert now_free >= free + 3
        lab.kill()
        lab.wait()
