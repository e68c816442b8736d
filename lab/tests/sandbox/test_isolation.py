"""Isolation: settings on plain files, processors of real control groups, a real irqbalance; all changes are undone, also after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ringroad_lab.deadline import wait_until
from ringroad_lab.sandbox.isolation import IsolationLevel, isolated, read_mask
from ringroad_lab.sandbox.processor_set import CGROUPS, own_processors, read_cpu_list

V1 = CGROUPS / "cpuset"
needs_v1 = pytest.mark.skipif(
    os.geteuid() != 0 or not (V1 / "cpuset.cpus").exists() or len(os.sched_getaffinity(0)) < 2,
    reason="needs root, two processors and control groups of version 1 for them",
)


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")
    return file


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Plain files in place of the kernel's: four processors, as on a physical machine."""
    cpus = tmp_path / "sys/devices/system/cpu"
    write(cpus / "online", "0-3")
    for number in range(4):
        write(cpus / f"cpu{number}/cpufreq/scaling_governor", "powersave")
    write(tmp_path / "sys/devices/virtual/workqueue/cpumask", "f")
    write(tmp_path / "proc/irq/default_smp_affinity", "f")
    for number, where in ((1, "0-3"), (2, "0"), (3, "2-3")):
        write(tmp_path / f"proc/irq/{number}/smp_affinity_list", where)
    write(tmp_path / "proc/sys/vm/stat_interval", "1")
    (tmp_path / "run").mkdir()
    return tmp_path


def contents(folder: Path) -> dict[str, str]:
    return {str(file): file.read_text().strip() for file in sorted(folder.rglob("*")) if file.is_file() and "lock" not in file.parts}


def test_nothing_is_changed_with_isolation_off(machine: Path) -> None:
    before = contents(machine)
    with isolated(IsolationLevel.OFF, frozenset({2, 3}), machine) as isolation:
        assert contents(machine) == before
    assert (isolation.facts, isolation.enter, isolation.refused()) == ({"level": "off"}, None, ())


def test_settings_are_applied_reported_and_restored(machine: Path) -> None:
    before = contents(machine)
    with isolated(IsolationLevel.SETTINGS, frozenset({2, 3}), machine) as isolation:
        governors = [(machine / f"sys/devices/system/cpu/cpu{number}/cpufreq/scaling_governor").read_text() for number in range(4)]
        assert governors == ["powersave\n", "powersave\n", "performance", "performance"]
        where = [(machine / f"proc/irq/{number}/smp_affinity_list").read_text().strip() for number in (1, 2, 3)]
        assert where == ["0,1", "0", "0,1"]
        assert (machine / "sys/devices/virtual/workqueue/cpumask").read_text() == "3"
        assert (machine / "proc/sys/vm/stat_interval").read_text() == "10"
        # Another program changes the setting in the meantime.
        (machine / "sys/devices/system/cpu/cpu3/cpufreq/scaling_governor").write_text("schedutil")
    assert isolation.facts["level"] == "settings"
    assert isolation.facts["processors"] == "2,3"
    assert isolation.facts["frequency governor"] == "scaling_governor performance: 2 of 2"
    assert isolation.facts["interrupts"] == "2 moved to other processors, 0 that the kernel does not move"
    assert isolation.facts["idle states"] == "not available: the kernel cannot limit idle states"
    assert isolation.facts["irqbalance"] == "not available: it is not running"
    assert isolation.facts["tuned"] == "not available: it is not running"
    assert isolation.enter is None
    assert contents(machine) == before | {str(machine / "sys/devices/system/cpu/cpu3/cpufreq/scaling_governor"): "schedutil"}


def test_changes_of_a_killed_run_are_undone(machine: Path) -> None:
    before = contents(machine)
    source = (
        "import sys, time\nfrom pathlib import Path\nfrom ringroad_lab.sandbox.isolation import isolated\n"
        "from ringroad_lab.scenario.model import IsolationLevel\n"
        "with isolated(IsolationLevel.SETTINGS, frozenset({2}), Path(sys.argv[1])):\n print('up', flush=True)\n time.sleep(100)\n"
    )
    with subprocess.Popen([sys.executable, "-c", source, str(machine)], stdout=subprocess.PIPE, text=True) as lab:
        assert lab.stdout is not None
        assert lab.stdout.readline() == "up\n"
        assert contents(machine) != before
        lab.kill()
    assert wait_until(lambda: contents(machine) == before, 30)


def test_a_second_run_isolates_nothing_and_reports_it(machine: Path) -> None:
    with isolated(IsolationLevel.SETTINGS, frozenset({2}), machine), isolated(IsolationLevel.SETTINGS, frozenset({3}), machine) as second:
        assert second.refused() == ("Isolation: all: refused: another run isolates its processors.",)
        assert (machine / "sys/devices/system/cpu/cpu3/cpufreq/scaling_governor").read_text() == "powersave\n"


def test_a_refusal_of_the_kernel_is_reported(machine: Path) -> None:
    governor = machine / "sys/devices/system/cpu/cpu2/cpufreq/scaling_governor"
    governor.unlink()
    # Writing to a folder fails for any user.
    governor.mkdir()
    with isolated(IsolationLevel.SETTINGS, frozenset(range(4)), machine) as isolation:
        assert isolation.facts["frequency governor"].startswith("scaling_governor performance: 3 of 4; refused: ")
        assert isolation.facts["interrupts"] == "refused: no processor would be left for them; name fewer in `cpus`"


def test_masks_and_lists_of_processors_have_the_kernels_format() -> None:
    assert read_mask("ff,00000001\n") == frozenset({0, *range(32, 40)})
    assert read_cpu_list("0-2,8\n") == frozenset({0, 1, 2, 8})
    assert read_cpu_list("\n") == frozenset()


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[Path]:
    """A folder with a real control group of the kernel as its root group, so that other processes of the machine are not affected."""
    group = V1 / f"ringroad-test-{uuid.uuid4().hex[:8]}"
    group.mkdir()
    (tmp_path / "cpuset").symlink_to(group)
    try:
        for name in ("cpuset.cpus", "cpuset.mems"):
            (group / name).write_text((V1 / name).read_text())
        yield tmp_path
    finally:
        for process in (group / "cgroup.procs").read_text().split():
            os.kill(int(process), signal.SIGKILL)
        assert wait_until(lambda: not (group / "cgroup.procs").read_text(), 20)
        group.rmdir()


def sleeper(group: Path, processors: frozenset[int] | None = None) -> subprocess.Popen[str]:
    """Start a process in a control group, bound to processors."""
    process = subprocess.Popen(["sh", "-c", 'echo $$ >"$0" && echo in && exec sleep 1000', group / "cgroup.procs"], stdout=-1, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"
    process.stdout.close()
    if processors:
        os.sched_setaffinity(process.pid, processors)
    return process


@needs_v1
def test_other_tasks_leave_the_runs_processors_and_get_their_affinity_back(groups: Path) -> None:
    first, *rest = sorted(os.sched_getaffinity(0))
    free, bound = sleeper(groups / "cpuset"), sleeper(groups / "cpuset", frozenset({first}))
    undo = ExitStack()
    with undo:
        result, enter = own_processors(frozenset({first}), undo, groups)
        assert result.startswith(f"processors {first} are the run's, 2 tasks were moved away, 0 threads of the kernel")
        assert os.sched_getaffinity(free.pid) == set(rest)
        assert os.sched_getaffinity(bound.pid) == set(rest)
        assert enter is not None
        own = sleeper(enter.parent)
        assert os.sched_getaffinity(own.pid) == {first}
        own.kill()
        own.wait()
    assert not [each for each in (groups / "cpuset").iterdir() if each.is_dir()]
    assert os.sched_getaffinity(free.pid) == {first, *rest}
    assert os.sched_getaffinity(bound.pid) == {first}
    for process in (free, bound):
        process.kill()
        process.wait()


@needs_v1
def test_no_processor_for_others_is_refused(groups: Path) -> None:
    with ExitStack() as undo:
        result, enter = own_processors(read_cpu_list((V1 / "cpuset.cpus").read_text()), undo, groups)
        assert result == "refused: no processor would be left for other programs; name fewer in `cpus`"
        assert enter is None


@pytest.mark.parametrize(("state", "is_made"), [("root", True), ("root invalid (Cpu list in cpuset.cpus not exclusive)", False)])
def test_a_partition_of_version_2_is_created_or_its_refusal_reported(tmp_path: Path, state: str, is_made: bool) -> None:
    # Plain files replace control groups of version 2, which a kernel with version 1 does not have. There, a new group has its files from
    # the start, and `cpuset.cpus.partition` reports the state of the partition.
    write(tmp_path / "cgroup.controllers", "cpuset cpu io")
    write(tmp_path / "cgroup.subtree_control", "cpu")
    source = (
        "import os, sys\nfrom contextlib import ExitStack\nfrom pathlib import Path\nfrom ringroad_lab.sandbox import processor_set\n"
        "root, state = Path(sys.argv[1]), sys.argv[2]\n"
        "read = processor_set._read\n"
        "processor_set._read = lambda file: state if file.name == 'cpuset.cpus.partition' else read(file)\n"
        "processor_set._REMOVE_ATTEMPTS = 1\n"
        "with ExitStack() as undo:\n result, enter = processor_set.own_processors({1}, undo, root)\n"
        " print(result, enter and enter.name, (root / 'cgroup.subtree_control').read_text(), sep='|')\n"
    )
    done = subprocess.run([sys.executable, "-c", source, str(tmp_path), state], capture_output=True, text=True, check=True)
    result, enter, control = done.stdout.strip().split("|")
    assert (enter == "cgroup.procs") is is_made
    assert result == (
        "processors 1 are a partition of the run (cgroup v2)" if is_made else f"refused: the kernel reports for the partition: {state}"
    )
    assert control == "+cpuset"
    assert (tmp_path / "cgroup.subtree_control").read_text() == "-cpuset"


_BESIDE_IRQBALANCE = """
mount -t tmpfs tmpfs /run && mkdir /run/irqbalance
mount --bind /proc/irq /proc/irq && mount -o remount,bind,ro /proc/irq
irqbalance --foreground --interval=1 >/dev/null & process=$!
trap 'kill $process' EXIT
"$0" -c "$1"
"""
_CONFIGURE_IRQBALANCE = """
from contextlib import ExitStack
from pathlib import Path
from ringroad_lab.deadline import wait_until
from ringroad_lab.sandbox import isolation
folder = Path('/run/irqbalance')
assert wait_until(lambda: list(folder.glob('*.sock')), 20)
banned = lambda: isolation.read_mask(isolation._ask(next(folder.glob('*.sock')), 'setup').split()[3])
before = banned()
with ExitStack() as undo:
    print(isolation._configure_irqbalance(folder, frozenset({1}), undo), flush=True)
    assert wait_until(lambda: banned() == before | {1}, 30)
assert wait_until(lambda: banned() == before, 30)
print('as before')
"""


def test_a_real_irqbalance_leaves_the_runs_processors_alone_during_the_run() -> None:
    found = subprocess.run(["sh", "-c", "command -v irqbalance unshare"], capture_output=True).returncode == 0
    if os.geteuid() != 0 or not found:
        pytest.skip("needs root and irqbalance")
    argv = ["unshare", "--mount", "sh", "-c", _BESIDE_IRQBALANCE, sys.executable, _CONFIGURE_IRQBALANCE]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.stdout == "configured to leave processors 1 alone\nas before\n", done.stderr
