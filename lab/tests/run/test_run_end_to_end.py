"""Whole runs from the command line: measured, stored, stopped, killed and resumed. Real devices, tiny durations."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from fabricated_runs import fabricated_run
from processes import descendants
from ringroad_lab.deadline import wait_until
from ringroad_lab.fleet.engine.job_environment import job_environment
from ringroad_lab.method.message_size import PLACEMENTS
from ringroad_lab.record import MeasurementStatus, RunRecord, RunState
from ringroad_lab.statistics.sequential import look_confidence
from ringroad_lab.statistics.verdict import Verdict
from ringroad_lab.store.result_store import ResultStore

PROGRAM = (sys.executable, "-m", "ringroad_lab.cli.main")
needs_qemu = pytest.mark.skipif(shutil.which("qemu-system-x86_64") is None, reason="QEMU is not installed (qemu-system-x86)")
# Only a failure takes this long.
PATIENCE_S = 240.0
# The values do not matter: the search can end far from the true throughput.
QUICK = ("--layer", "quick", "--set", "frames=[64, 1518]", "--set", "method.throughput.resolution=0.4")


class Lab:
    """The program, with a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "results.db"
        self.report = folder / "report.html"
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.marker = uuid.uuid4().hex
        self.env = {**os.environ, "TMPDIR": str(self.temporary), "RINGROAD_LAB_TEST": self.marker}

    def command(self, verb: str, *arguments: str) -> list[str]:
        return [*PROGRAM, verb, *arguments, "--store", str(self.store)]

    def run(self, verb: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Run the program to its end; return its status and its JSON output."""
        done = subprocess.run(self.command(verb, *arguments), capture_output=True, text=True, timeout=PATIENCE_S, env=self.env)
        assert done.stdout, done.stderr
        output: dict[str, Any] = json.loads(done.stdout)
        return done.returncode, output

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command("run", *arguments),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=self.env,
        )

    def family(self) -> list[int]:
        """Return all processes that the program started, in any session and namespace."""
        return [process.pid for process in psutil.process_iter(["environ"]) if self._is_its_own(process)]

    def names(self) -> set[str]:
        """Return the names of those processes; a process that ends meanwhile can be missing."""
        return {process.info["name"] for process in psutil.process_iter(["environ", "name"]) if self._is_its_own(process)}

    def _is_its_own(self, process: psutil.Process) -> bool:
        return (process.info["environ"] or {}).get("RINGROAD_LAB_TEST") == self.marker

    def record(self) -> RunRecord:
        with ResultStore(str(self.store)) as results:
            return results.get_run(results.resolve("latest"))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    assert wait_until(lambda: not made.family() and not list(made.temporary.iterdir()), 10)


def await_first_measurement(output: IO[str] | None) -> str:
    """Read the program's output until it reports a measurement."""
    assert output is not None
    lines = []
    for line in output:
        lines.append(line)
        if "#1" in line:
            return line
    raise AssertionError("".join(lines))


def test_processor_time_of_a_process_and_of_the_kernel_is_reported_by_frame(lab: Lab) -> None:
    chosen = ("duts=[ringroad, linux-bridge]", "topologies=[P2P]", "methods=[processor-cost]", "frames=[64]")
    # A light load for both devices: a busy machine must not delay frames.
    light = ("method.processor-cost.load_ratios=[0.1]", "method.processor-cost.throughput.resolution=0.4")
    settings = [argument for setting in (*chosen, *light) for argument in ("--set", setting)]
    status, output = lab.run("run", "compare-guest-switches", "--layer", "quick", *settings, "--json")
    assert status == 0, output
    of_process, of_kernel = (measurement.outcome for measurement in lab.record().measurements)
    assert of_process.headline == "cost_10pct_processor_ns"
    assert of_process.metrics[of_process.headline].value > 0
    assert of_process.metrics["dut_memory_bytes"].value > 0
    assert {"cost_idle_processors", "cost_10pct_wait_ratio"} <= set(of_process.metrics)
    assert of_kernel.headline == "cost_10pct_kernel_ns"
    assert "cost_10pct_processor_ns" not in of_kernel.metrics
    counts_cycles = lab.record().facts["counters"]["processor cycles"]
    assert ("cost_10pct_cycles" in of_process.metrics) == (counts_cycles == "yes")


def test_a_run_is_measured_stored_and_reported(lab: Lab) -> None:
    status, output = lab.run("run", "BRIDGE_VETH", *QUICK, "--json", "--label", "build=17", "--report", str(lab.report))
    assert status == 0, output
    assert output["state"] == RunState.FINISHED
    record = lab.record()
    assert record.run_id == output["run_id"]
    assert record.labels["build"] == "17"
    assert [m.frame.name for m in record.measurements] == ["64", "1518"]
    for measurement in record.measurements:
        assert measurement.outcome.status.is_sample
        assert measurement.outcome.metrics[measurement.outcome.headline].value > 0
        assert measurement.trials
    assert {ceiling.frame.name for ceiling in record.ceilings} == {"64", "1518"}
    assert record.duts[0].versions
    assert record.facts["kernel"]
    # While it measures, also in the bridge's own namespace.
    for end in ("1", "2", "generator 1", "generator 2"):
        assert "rx-checksumming off" in record.duts[0].ports[f"{end} offloads"]
    assert record.generator_version
    assert record.run_id[:8] in lab.report.read_text()
    # A comparison of the run with itself.
    status, compared = lab.run("compare", record.run_id, record.run_id, "--format", "json", "--output", "-")
    assert status == 0, compared


@pytest.mark.long
def test_a_run_continues_until_it_is_decided_or_has_the_maximum_of_pairs(lab: Lab) -> None:
    twice = ("duts=[one, two]", "dut.one.driver=linux-bridge", "dut.two.driver=linux-bridge", "topologies=[P2P]", "repetitions=1")
    settings = [argument for setting in twice for argument in ("--set", setting)]
    quick = ("--layer", "quick", "--set", "frames=[64]", "--set", "method.throughput.resolution=0.4")
    # Three pairs are too few for a decision, whatever their values.
    pairs = ("--until-decided", "one,two", "--most-pairs", "3")
    status, output = lab.run("run", "compare-switches", *quick, *settings, *pairs, "--json")
    assert status == 0, output
    assert output["state"] == RunState.FINISHED
    (row,) = (row for row in output["comparison"]["rows"] if row["is_headline"])
    assert (row["baseline_dut"], row["key"]["dut"], row["comparison"]["verdict"]) == ("one", "two", Verdict.INCONCLUSIVE)
    record = lab.record()
    # One pair, two pairs, three pairs.
    assert record.scenario["looks"] == 3
    assert row["comparison"]["confidence"] == pytest.approx(look_confidence(3))
    assert [(m.repetition, m.dut) for m in record.measurements] == [(0, "one"), (0, "two"), (1, "two"), (1, "one"), (2, "one"), (2, "two")]


def test_a_load_of_tcp_is_measured_between_stations(lab: Lab) -> None:
    quick = ("duts=[linux-bridge]", "repetitions=1", "method.tcp-load.duration_s=1", "method.tcp-load.omit_s=0")
    status, output = lab.run("run", "TCP_LOAD", *(argument for setting in quick for argument in ("--set", setting)), "--json")
    assert status == 0, output
    record = lab.record()
    (measurement,) = record.measurements
    assert measurement.outcome.metrics[measurement.outcome.headline].value > 0
    assert measurement.dut_counters["1.rx_frames"] > 0
    assert any("congestion control" in text for text in record.deviations)


@needs_qemu
@pytest.mark.parametrize(("dut", "port"), [("ringroad", "vhost_user"), ("linux-bridge", "tun")])
def test_a_guest_migrates_under_load_and_both_switches_find_it_at_its_new_place(lab: Lab, dut: str, port: str) -> None:
    quick = ("repetitions=1", "method.live-migration.steady_s=1", "method.live-migration.memory_mib=8")
    settings = [argument for setting in (f"duts=[{dut}]", *quick) for argument in ("--set", setting)]
    status, output = lab.run("run", "LIVE_MIGRATION", *settings, "--json")
    assert status == 0, output
    record = lab.record()
    (measurement,) = record.measurements
    outcome = measurement.outcome
    metrics = {name.removeprefix("live_migration_"): metric.value for name, metric in outcome.metrics.items()}
    assert outcome.headline == "live_migration_gap_s"
    assert metrics["gap_s"] > 0
    assert 0 < metrics["sent_messages_per_s"] < metrics["sent_messages"]
    assert metrics["total_s"] >= metrics["downtime_s"]
    # The random data alone are as long.
    assert metrics["transferred_bytes"] > 8 << 20
    assert metrics["damaged_messages"] == metrics["duplicate_messages"] == 0
    assert 0 <= metrics["lost_to_guest_messages"] == metrics["lost_messages"] < metrics["sent_messages"]
    # The guest was on both switches.
    assert measurement.dut_counters["source 1.rx_frames"] > 0
    assert measurement.dut_counters["destination 1.rx_frames"] > 0
    if dut == "ringroad":
        # Each frame was delivered at the old or the new place, or is counted with its cause.
        assert metrics["uncounted_messages"] == 0, metrics
    ((label, recorded),) = ((each.label, each) for each in record.duts)
    assert label == dut
    assert {"guest", "arrival"} <= set(recorded.guests)
    assert {each: mode.partition(" ")[0].strip(",") for each, mode in recorded.ports.items() if each.endswith(" 1")} == {
        "source 1": port,
        "destination 1": port,
    }
    assert any("ICMP echo requests" in text for text in record.deviations)


@pytest.mark.parametrize(
    ("scenario", "watched"),
    [
        ("MESSAGE_SIZES", {"dut ringroadd"}),
        pytest.param("MESSAGE_SIZES_GUESTS", {"dut ringroadd", "station1", "station2"}, marks=needs_qemu),
    ],
)
def test_message_sizes_are_swept_between_stations(lab: Lab, scenario: str, watched: set[str]) -> None:
    quick = ("duts=[ringroad]", "method.message-size.max_bytes=16", "method.message-size.tools=[netpipe, sockperf-udp]")
    settings = [argument for setting in quick for argument in ("--set", setting)]
    status, output = lab.run("run", scenario, *settings, "--set", "method.message-size.perturbation_bytes=0", "--json")
    assert status == 0, output
    record = lab.record()
    (measurement,) = record.measurements
    assert measurement.outcome.metrics["dut_memory_bytes"].value > 0
    assert {curve.name for curve in measurement.outcome.curves} >= {"netpipe latency", "sockperf-udp throughput"}
    assert measurement.dut_counters["1.rx_frames"] > 0
    assert record.duts[0].versions
    ports = record.duts[0].ports
    assert set(ports) == {"1", "2", "stations"}
    used = {role: cpus.replace(" ", "") for role, cpus in record.facts["processors used"].items()}
    assert ports["stations"].endswith(f"on processors {used['station1']} and {used['station2']}; device on {used['dut']}")
    assert any(PLACEMENTS["stations-apart" if scenario == "MESSAGE_SIZES" else "device-apart"] in text for text in record.deviations)
    memory = [series.subject for series in record.series if series.name == "resident memory"]
    assert {subject.removeprefix("ringroad: ").rpartition(" (")[0] for subject in memory} == watched


def test_a_stopped_run_keeps_its_measurements_and_can_be_resumed(lab: Lab) -> None:
    process = lab.start("BRIDGE_VETH", *QUICK, "--set", "repetitions=2")
    await_first_measurement(process.stderr)
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, output
    assert "stopping after the current trial" in output
    before = lab.record()
    assert before.state is RunState.STOPPED
    assert 1 <= len(before.measurements) < 4
    status, resumed = lab.run("resume", before.run_id[:8], "--json")
    assert status == 0, resumed
    after = lab.record()
    assert after.state is RunState.FINISHED
    assert [m.number for m in after.measurements] == list(range(4))
    assert after.measurements[: len(before.measurements)] == before.measurements


def test_two_builds_of_one_device_are_measured_in_turns_and_named(lab: Lab, tmp_path: Path) -> None:
    folder = Path(os.environ["RINGROAD_BIN_DIR"])
    copies = tmp_path / "copies/bin"
    copies.mkdir(parents=True)
    for program in ("ringroad", "ringroadd"):
        shutil.copy2(folder / program, copies)
    # Another build: its file differs. Bytes after the ELF content are ignored.
    with (copies / "ringroadd").open("ab") as file:
        file.write(b"another build")
    builds = ("duts=[new, old]", "dut.new.driver=ringroad", "dut.old.driver=ringroad", f"dut.new.build.prefix={copies.parent}")
    settings = [argument for setting in (*builds, "frames=[64]") for argument in ("--set", setting)]
    quick = ("--layer", "quick", "--set", "method.throughput.resolution=0.4", "--set", "physical=memif")
    status, output = lab.run("run", "RINGROAD_MEMIF", *quick, *settings, "--json")
    assert status == 0, output
    new, old = lab.record().duts
    assert (new.build, old.build) == (f"prefix {copies.parent}", "")
    assert list(new.files) == [str(copies / "ringroadd")]
    assert list(old.files) == [str((folder / "ringroadd").resolve())]
    assert new.files.values() != old.files.values()
    status, compared = lab.run("compare", "old", "new", "--within", "latest", "--json", "--output", "-")
    assert status == 0, compared
    differences = {(each["group"], each["name"]) for each in compared["environment"]}
    assert {("device", "build"), ("device", f"sha256 of {copies / 'ringroadd'}")} <= differences
    record = lab.record()
    assert record.planned_s
    assert record.took_s


def test_no_second_run_starts_while_a_run_is_under_way(lab: Lab) -> None:
    process = lab.start("BRIDGE_VETH", *QUICK, "--set", "repetitions=30")
    await_first_measurement(process.stderr)
    for arguments, words in ((("run", "BRIDGE_VETH"), "another run measures"), (("resume", "latest"), "is under way")):
        done = subprocess.run(lab.command(*arguments), capture_output=True, text=True, timeout=PATIENCE_S, env=lab.env)
        assert done.returncode == 1, done.stderr
        assert words in done.stderr
        assert f"process {process.pid} of" in done.stderr
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)


def test_a_killed_run_leaves_only_its_results(lab: Lab) -> None:
    process = lab.start("RINGROAD_MEMIF", *QUICK, "--set", "repetitions=2")
    await_first_measurement(process.stderr)
    names = lab.names()
    assert {"ringroad", "ringroadd"} <= names, names
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    # Interfaces, mounts and namespaces disappear with the last process in them.
    assert wait_until(lambda: not lab.family(), PATIENCE_S)
    killed = lab.record()
    assert killed.measurements
    status, output = lab.run("resume", "latest", "--json")
    assert status == 0, output
    assert len(lab.record().measurements) == 4


def test_a_job_that_its_engine_restarts_resumes_its_run(lab: Lab) -> None:
    run_id = str(uuid.uuid4())
    lab.env |= job_environment(run_id)
    process = lab.start("BRIDGE_VETH", *QUICK, "--set", "repetitions=2")
    await_first_measurement(process.stderr)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    measured = lab.record().measurements
    status, output = lab.run("run", "BRIDGE_VETH", *QUICK, "--set", "repetitions=2", "--json")
    assert status == 0, output
    record = lab.record()
    assert (record.run_id, len(record.measurements)) == (run_id, 4)
    assert record.measurements[: len(measured)] == measured


@pytest.mark.parametrize("after_s", [0.3, 0.6, 0.9, 1.2, 1.5, 1.8])
def test_a_run_that_is_killed_while_it_starts_leaves_nothing(lab: Lab, after_s: float) -> None:
    process = lab.start("RINGROAD_MEMIF", *QUICK)
    time.sleep(after_s)
    process.kill()
    process.communicate(timeout=PATIENCE_S)


def test_a_second_signal_stops_at_once_and_keeps_the_measurements(lab: Lab) -> None:
    process = lab.start("BRIDGE_VETH", *QUICK, "--set", "repetitions=3", "--set", "method.throughput.search_s=60")
    assert process.stderr is not None
    assert process.stderr.readline()
    # The first signal would wait for a very long trial.
    assert wait_until(lambda: "ringroad" in lab.names(), PATIENCE_S)
    process.send_signal(signal.SIGINT)
    assert "a second signal stops at once" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    _, output = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert lab.record().state is RunState.STOPPED


def test_a_device_that_dies_is_invalid_and_not_zero(lab: Lab) -> None:
    process = lab.start("RINGROAD_MEMIF", *QUICK)
    # During the measurement of the second size.
    await_first_measurement(process.stderr)
    (daemon,) = descendants(process.pid, "ringroadd")
    daemon.kill()
    _, output = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 4, output
    first, second = lab.record().measurements
    assert first.outcome.status is not MeasurementStatus.INVALID
    assert second.outcome.status is MeasurementStatus.INVALID
    assert not second.outcome.metrics
    assert "ringroadd" in " ".join(second.outcome.reasons)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("run", "BRIDGE_VETHX"), 2, "BRIDGE_VETH"),
        (("run", "BRIDGE_VETH", "--set", "frames=[12]"), 2, "frames"),
        (("run", "BRIDGE_VETH", "--baseline", "never-set"), 1, "never-set"),
        (("resume", "nothing-there"), 1, "nothing-there"),
        (("run", "RINGROAD_MEMIF", "--set", "dut.ringroad.build.prefix=/absent"), 9, "there is no folder /absent"),
        (("run", "BRIDGE_VETH", "--set", "dut.linux-bridge.build.prefix=/"), 2, "the kernel forwards"),
        (("run", "BRIDGE_VETH", "--label", "version"), 2, "NAME=VALUE"),
        (("run", "BRIDGE_VETH", "--until-decided", "linux-bridge,ovs"), 2, "name two of the devices"),
        (("run", "BRIDGE_VETH", "--most-pairs", "9"), 2, "--until-decided"),
        (("run", "BRIDGE_VETH", "--baseline", "last-stable"), 1, "no finished run of BRIDGE_VETH"),
        (("run", "BRIDGE_VETH", "--set", "frames=[70]", "--baseline", "other-frames"), 1, "nothing to compare"),
    ],
)
def test_errors_are_reported_before_anything_is_measured(lab: Lab, arguments: tuple[str, ...], status: int, words: str) -> None:
    with ResultStore(str(lab.store)) as results:
        results.add_run(fabricated_run(run_id="other-frames", capacities_fps={"linux-bridge": 1e6}, frames=["64"]))
    done = subprocess.run(lab.command(*arguments), capture_output=True, text=True, timeout=PATIENCE_S, env=lab.env)
    assert done.returncode == status, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_busy_program_on_the_runs_processor_disturbs_its_trials_and_is_named(lab: Lab) -> None:
    processor = max(os.sched_getaffinity(0))
    loop = f"import os\nos.sched_setaffinity(0, [{processor}])\nprint(os.getpid(), flush=True)\nos.close(1)"
    # Its parent has ended, so the program does not belong to the run.
    argv = ["sh", "-c", '"$0" -c "$1" &', sys.executable, f"{loop}\nwhile True: pass"]
    pid = int(subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout)
    try:
        where = ("--set", f"cpus.generator=[{processor}]", "--set", f"cpus.dut=[{processor}]", "--set", "frames=[64]")
        # The method measures more than loss, so every disturbed trial is repeated or marked.
        short = {"load_ratios": "[0.5]", "trial_s": "0.5", "throughput.resolution": "0.5", "throughput.validation_s": "0.2"}
        what = ["methods=[latency]", "disturbance.extra_trials=2", *(f"method.latency.{name}={value}" for name, value in short.items())]
        settings = [argument for setting in what for argument in ("--set", setting)]
        status, output = lab.run("run", "BRIDGE_VETH", "--layer", "quick", *where, *settings, "--json", "--report", str(lab.report))
    finally:
        os.kill(pid, signal.SIGKILL)
    assert status in (0, 4), output
    trials = [trial for m in lab.record().measurements for trial in m.trials]
    assert all(trial.disturbance for trial in trials)
    disturbed = [trial for trial in trials if trial.is_disturbed]
    assert any(trial.is_repeated for trial in disturbed)
    assert any(name.startswith("python") for trial in disturbed if trial.disturbance for name in trial.disturbance.programs)
    marked = {m.outcome.status for m in lab.record().measurements if any(t.is_disturbed and not t.is_repeated for t in m.trials)}
    assert MeasurementStatus.OK not in marked
    assert any(each["disturbances"]["disturbed"] for each in output["measurements"])
    assert "of processor " in lab.report.read_text()
