"""The Slurm engine with a real Slurm: slurmctld and four slurmd; two beds, each of a generator and a device."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import PATIENCE_S, SlurmCluster, is_installed

from ringroad_lab.deadline import wait_until
from ringroad_lab.fleet.engine.interface import EngineError, EngineSettings, Job, JobReport, JobState
from ringroad_lab.fleet.engine.slurm import SlurmEngine
from ringroad_lab.fleet.engine.slurm_settings import SlurmSettings
from ringroad_lab.fleet.inventory import BedSettings

pytestmark = pytest.mark.skipif(not is_installed(), reason="Slurm is not installed (slurmctld, slurmd, slurm-client)")

BEDS = {name: BedSettings(machines={"generator": f"host-{name}1", "dut": f"host-{name}2"}) for name in "ab"}
SAYS_WHERE = (
    'echo "bed=$RINGROAD_LAB_BED machines=$RINGROAD_LAB_MACHINES on=$SLURMD_NODENAME job=$RINGROAD_LAB_JOB store=$RINGROAD_LAB_STORE"'
)
# Runs until the file `go` exists, and reports SIGTERM.
WAITS = """
trap 'echo got SIGTERM; exit 130' TERM
echo "$SLURMD_NODENAME restart=${SLURM_RESTART_COUNT:-0}" >>began
until [ -e go ]; do sleep 0.02; done
"""


class Bench:
    """A cluster, and the engines of several dispatchers."""

    def __init__(self, cluster: SlurmCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder

    def engine(self, script: str = SAYS_WHERE, **own: Any) -> SlurmEngine:  # noqa: ANN401
        """Return an engine whose jobs are a script with the arguments of `ringroad-lab`."""
        (self.folder / "program").write_text(f"cd {self.folder}\n{script}\n")
        settings = SlurmSettings(
            **{
                "config": str(self.cluster.config),
                "folder": str(self.folder / "jobs"),
                "program": ("/bin/bash", str(self.folder / "program")),
                **own,
            }
        )
        return SlurmEngine(EngineSettings("postgresql://lab:secret@db/lab", self.folder, own=settings))

    def go(self) -> None:
        (self.folder / "go").touch()

    def began(self) -> list[str]:
        file = self.folder / "began"
        return file.read_text().splitlines() if file.exists() else []

    def await_began(self, copies: int = 1) -> list[str]:
        assert wait_until(lambda: len(self.began()) >= copies, PATIENCE_S), self.cluster.said()
        return self.began()

    def await_state(self, engine: SlurmEngine, key: str, state: JobState) -> JobReport:
        report = engine.state(key)

        def has_state() -> bool:
            nonlocal report
            report = engine.state(key)
            return report.state is state

        assert wait_until(has_state, PATIENCE_S, 0.1), (report, self.cluster.said())
        return report

    def await_reason(self, reason: str) -> None:
        assert wait_until(lambda: reason in self.cluster.call("squeue", "--noheader", "--format=%r"), PATIENCE_S), self.cluster.said()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with SlurmCluster() as cluster:
        yield Bench(cluster, tmp_path)


def job(*arguments: str, beds: Mapping[str, BedSettings] = BEDS, name: str = "") -> Job:
    return Job(name or str(uuid.uuid4()), arguments, beds)


def test_a_job_gets_a_whole_bed_runs_on_its_generator_and_reports_its_end(bench: Bench) -> None:
    engine = bench.engine(f'{SAYS_WHERE}; printf "<%s>" "$@"; exit 7')
    strange = ("run", "A'B\"C", "$(touch here)", "", "--label=a=b; exit 0", "*")
    one = job(*strange)
    key = engine.submit(one)
    report = bench.await_state(engine, key, JobState.ENDED)
    assert report.exit_status == 7
    where, arguments = report.output.splitlines()
    machines = {bed: f"bed={bed} machines=generator=host-{bed}1,dut=host-{bed}2 on=host-{bed}1" for bed in BEDS}
    assert where.split(" job=")[0] in machines.values()
    assert where.endswith(f" job={one.name} store=postgresql://lab:secret@db/lab")
    assert arguments == "".join(f"<{each}>" for each in strange)
    assert not (bench.folder / "here").exists()
    # Slurm discards the job, as after its MinJobAge; the folder still has its files.
    shown = bench.cluster.call("scontrol", "show", "job", "--details")
    assert "secret" not in shown
    assert f"JobName={one.name}" in shown
    assert f"Comment={one.name}" in shown
    bench.cluster.kill("slurmctld")
    bench.cluster.folder.joinpath("state", "job_state").unlink(missing_ok=True)
    bench.cluster.start_controller()
    assert bench.engine().state(key) == report


def test_two_jobs_have_a_bed_each_and_a_third_waits(bench: Bench) -> None:
    engine = bench.engine(WAITS, most_waiting=1)
    keys = [engine.submit(job("run")) for _ in range(2)]
    assert sorted(bench.await_began(2)) == ["host-a1 restart=0", "host-b1 restart=0"]
    assert engine.reserve()
    third = engine.submit(job("run"))
    assert engine.state(third).state is JobState.QUEUED
    assert not engine.reserve()
    # The engine of a later dispatcher finds the job.
    assert bench.engine(WAITS).find(third) == third
    bench.go()
    for key in (*keys, third):
        assert bench.await_state(engine, key, JobState.ENDED).exit_status == 0
        assert engine.find(key) is None
    assert bench.began()[2] in bench.began()[:2]


def test_a_job_without_beds_runs_on_any_node(bench: Bench) -> None:
    engine = bench.engine()
    report = bench.await_state(engine, engine.submit(job("run", beds={})), JobState.ENDED)
    assert report.output.startswith("bed= machines= on=")
    assert report.exit_status == 0


def test_of_beds_with_different_numbers_of_machines_the_usable_ones_are_requested(bench: Bench) -> None:
    beds = {"a": BedSettings(machines={"generator": "host-a1"}), "b": BEDS["b"]}
    bench.cluster.call("scontrol", "update", "NodeName=host-a1", "State=DRAIN", "Reason=test")
    engine = bench.engine()
    assert bench.await_state(engine, engine.submit(job("run", beds=beds)), JobState.ENDED).output.startswith("bed=b ")


def test_a_bed_that_differs_in_slurm_is_rejected(bench: Bench) -> None:
    engine = bench.engine()
    for machines, words in (
        ({"generator": "host-a2", "dut": "host-a1"}, "not on the generator of bed a"),
        ({"generator": "host-a1", "dut": "host-c1"}, "host-a1,host-a2 are not a bed"),
    ):
        report = bench.await_state(engine, engine.submit(job("run", beds={"a": BedSettings(machines=machines)})), JobState.ENDED)
        assert report.exit_status == 1
        assert words in report.output


def test_a_drained_bed_gets_no_job_and_its_runs_do_not_resume(bench: Bench) -> None:
    engine = bench.engine(f"{SAYS_WHERE}; exit 1")
    only_a = {"a": BEDS["a"]}
    first = job("run", beds=only_a)
    bench.await_state(engine, engine.submit(first), JobState.ENDED)
    assert engine.may_go_on(first.name)
    bench.cluster.call("scontrol", "update", "NodeName=host-a2", "State=DRAIN", "Reason=test")
    assert not engine.may_go_on(first.name)
    assert engine.may_go_on("a run that did not begin")
    second = job("run", beds=BEDS)
    assert bench.await_state(engine, engine.submit(second), JobState.ENDED).output.startswith("bed=b ")
    third = engine.submit(job("run", beds=only_a))
    bench.await_reason("ReqNodeNotAvail")
    bench.cluster.call("scontrol", "update", "NodeName=host-a2", "State=RESUME")
    assert bench.await_state(engine, third, JobState.ENDED).output.startswith("bed=a ")


def test_a_run_resumes_where_it_began(bench: Bench) -> None:
    engine = bench.engine(f"{SAYS_WHERE}; exit 1")
    began = job("run", beds={"b": BEDS["b"]})
    bench.await_state(engine, engine.submit(began), JobState.ENDED)
    resumed = job("resume", began.name, name=began.name)
    report = bench.await_state(engine, engine.submit(resumed), JobState.ENDED)
    assert [line.split()[0] for line in report.output.splitlines()] == ["bed=b", "bed=b"]
    with pytest.raises(EngineError, match="host-b1,host-b2, which are no longer one of its beds"):
        engine.submit(job("resume", began.name, name=began.name, beds={"a": BEDS["a"]}))


def test_a_license_limits_access_to_a_shared_device(bench: Bench) -> None:
    engine = bench.engine(WAITS, licenses="ixia:1")
    first = engine.submit(job("run"))
    bench.await_began()
    second = engine.submit(job("run"))
    bench.await_reason("Licenses")
    bench.go()
    for key in (first, second):
        bench.await_state(engine, key, JobState.ENDED)


def test_a_job_is_cancelled_while_it_waits_and_while_it_runs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = bench.engine(WAITS)
    only_a = {"a": BEDS["a"]}
    runs, waits = job("run", beds=only_a), job("run", beds=only_a)
    engine.submit(runs)
    bench.await_began()
    engine.submit(waits)
    engine.cancel(waits.name)
    bench.await_state(engine, waits.name, JobState.ENDED)
    assert engine.state(runs.name).state is JobState.RUNNING
    engine.cancel(runs.name)
    report = bench.await_state(engine, runs.name, JobState.ENDED)
    assert report.exit_status == 130
    assert report.output.endswith("got SIGTERM")
    assert bench.began() == ["host-a1 restart=0"]
    # A job that ignores the signal ends after a repeated request.
    monkeypatch.setattr("ringroad_lab.fleet.engine.slurm._SECOND_SIGNAL_S", 0.0)
    deaf = bench.engine("trap 'echo got a signal' TERM; echo x >>began; while :; do sleep 0.05; done")
    key = deaf.submit(job("run"))
    bench.await_began(2)
    deaf.cancel(key)
    assert wait_until(lambda: "got a signal" in (bench.folder / "jobs" / f"{key}.log").read_text(), PATIENCE_S)
    assert deaf.state(key).state is JobState.RUNNING
    deaf.cancel(key)
    assert bench.await_state(deaf, key, JobState.ENDED).exit_status != 0
    deaf.cancel(key)


def test_a_slurmctld_that_is_down_or_does_not_answer_is_an_error_and_loses_no_job(bench: Bench) -> None:
    engine = bench.engine(WAITS, answer_within_s=3)
    key = engine.submit(job("run"))
    bench.await_began()
    bench.cluster.freeze("slurmctld")
    other = bench.engine(WAITS, answer_within_s=0.5)
    with pytest.raises(EngineError, match=r"did not answer within 0\.5 s"):
        other.find(key)
    bench.cluster.kill("slurmctld")
    down = bench.engine(WAITS)
    for act in (down.reserve, lambda: down.state(key), lambda: down.cancel(key), lambda: down.submit(job("run"))):
        with pytest.raises(EngineError, match="Slurm: squeue failed"):
            act()
    bench.cluster.start_controller()
    assert engine.find(key) == key
    bench.go()
    assert bench.await_state(engine, key, JobState.ENDED).exit_status == 0
    with pytest.raises(EngineError, match="sbatch failed"):
        bench.engine(partition="nowhere").submit(job("run"))


def test_an_accepted_job_that_vanished_with_slurmctld_is_reported_as_lost(bench: Bench) -> None:
    engine = bench.engine(WAITS)
    # The job waits: no node has any trace of it.
    bench.cluster.call("scontrol", "update", "PartitionName=lab", "State=DOWN")
    one = job("run")
    engine.submit(one)
    assert engine.state(one.name).state is JobState.QUEUED
    bench.cluster.kill("slurmctld")
    for file in (bench.cluster.folder / "state").glob("job_state*"):
        # As if slurmctld had been killed before it wrote them.
        file.unlink()
    bench.cluster.start_controller()
    lost = bench.engine(WAITS).state(one.name)
    assert (lost.state, lost.is_lost, lost.exit_status) == (JobState.ENDED, True, None)
    bench.cluster.call("scontrol", "update", "PartitionName=lab", "State=UP")
    assert engine.submit(one) == one.name
    bench.await_began()
    bench.go()
    ended = bench.await_state(engine, one.name, JobState.ENDED)
    assert (ended.exit_status, ended.is_lost) == (0, False)


def test_a_job_submitted_twice_after_a_lost_answer_runs_once(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = bench.engine(WAITS)
    one = job("run")
    # This sbatch submits the job, and then fails.
    real = bench.cluster.call("which", "sbatch").strip()
    shadow = tmp_path / "bin" / "sbatch"
    shadow.parent.mkdir()
    shadow.write_text(f'#!/bin/sh\n{real} "$@"\nexit 1\n')
    shadow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shadow.parent}:{os.environ['PATH']}")
    assert bench.engine(WAITS).submit(one) == one.name
    assert engine.submit(one) == one.name
    bench.await_began()
    assert bench.cluster.call("squeue", "--noheader", "--format=%j").split() == [one.name]
    bench.go()
    bench.await_state(engine, one.name, JobState.ENDED)
    assert len(bench.began()) == 1


def test_after_the_loss_of_a_slurmd_the_job_continues_only_on_its_bed(bench: Bench) -> None:
    engine = bench.engine(WAITS)
    one = job("run")
    engine.submit(one)
    (first,) = bench.await_began()
    node = first.split()[0]
    bench.cluster.kill(node)
    # Slurm requeues the job while the other bed is free; the first copy continues.
    assert bench.await_state(engine, one.name, JobState.QUEUED).state is JobState.QUEUED
    assert wait_until(lambda: f"ReqNodeList={replace_bed(node)}" in shown(bench, engine, one), PATIENCE_S), shown(bench, engine, one)
    assert not engine.may_go_on(one.name)
    bench.cluster.start_node(node)
    assert wait_until(lambda: engine.state(one.name).state is not JobState.QUEUED, PATIENCE_S, 0.1), shown(bench, engine, one)
    assert bench.await_began(2) == [f"{node} restart=0", f"{node} restart=1"]
    bench.go()
    assert bench.await_state(engine, one.name, JobState.ENDED).exit_status == 0


def test_a_manually_requeued_job_is_stopped_properly_and_continues_on_its_bed(bench: Bench) -> None:
    engine = bench.engine(WAITS)
    one = job("run")
    engine.submit(one)
    (first,) = bench.await_began()
    bench.cluster.call("scontrol", "requeue", "1")
    assert wait_until(lambda: engine.state(one.name).state is not None and len(bench.began()) == 2, PATIENCE_S, 0.1), bench.cluster.said()
    assert bench.began()[1] == first.replace("restart=0", "restart=1")
    bench.go()
    report = bench.await_state(engine, one.name, JobState.ENDED)
    assert (report.exit_status, "got SIGTERM" in report.output) == (0, True)


def test_a_run_gets_the_signal_to_end_before_the_time_limit(bench: Bench) -> None:
    engine = bench.engine(WAITS, time_limit="1", stop_before_limit_s=60)
    key = engine.submit(job("run"))
    report = bench.await_state(engine, key, JobState.ENDED)
    assert report.exit_status == 130
    assert report.output.endswith("got SIGTERM")
    # The nodes have registered since then, and Slurm found the batch script where it expects it.
    assert [line.split()[1] for line in bench.began()] == ["restart=0"]


def test_a_first_copy_that_continued_without_its_slurmd_can_finish(bench: Bench) -> None:
    engine = bench.engine(WAITS)
    one = job("run")
    engine.submit(one)
    (first,) = bench.await_began()
    bench.cluster.lose(first.split()[0])
    bench.await_state(engine, one.name, JobState.QUEUED)
    bench.go()
    assert bench.await_state(engine, one.name, JobState.ENDED).exit_status == 0
    assert bench.began() == [first]


def test_a_bed_that_stays_down_does_not_block_the_request(bench: Bench) -> None:
    engine = bench.engine(WAITS, bed_patience_s=0.0)
    one = job("run")
    engine.submit(one)
    (first,) = bench.await_began()
    bench.cluster.lose(first.split()[0])
    report = bench.await_state(engine, one.name, JobState.ENDED)
    assert "down or drained" in report.output
    assert not engine.may_go_on(one.name)


def replace_bed(node: str) -> str:
    bed = node[-2]
    return f"host-{bed}1,host-{bed}2"


def shown(bench: Bench, engine: SlurmEngine, one: Job) -> str:
    engine.state(one.name)
    return bench.cluster.call("scontrol", "show", "jobs")
