"""An engine with simulated jobs: their runs are fabricated, and nothing is measured. The jobs outlive dispatchers, as real ones do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fabricated_runs import fabricated_run
from ringroad_lab.fleet.engine.interface import Engine, EngineError, EngineSettings, Job, JobReport, JobState
from ringroad_lab.record import RunRecord, RunState
from ringroad_lab.store.result_store import ResultStore
from store_writers import head_of


def tiny_run(run_id: str, **values: float) -> RunRecord:
    return fabricated_run(
        run_id=run_id, name="BRIDGE_VETH", capacities_fps={"ovs": values.get("capacity", 1e6)}, frames=("64",), repetitions=6, latency=False
    )


def key_of(name: str) -> str:
    return f"here/{name}"


@dataclass
class Cluster:
    """The jobs, independent of any dispatcher."""

    store: ResultStore
    submitted: list[Job] = field(default_factory=list)
    under_way: dict[str, Job] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    ended: dict[str, JobReport] = field(default_factory=dict)
    is_down: bool = False
    rooms: int = 1
    on_submit: Callable[[Job], None] = lambda _job: None
    """What a job does as soon as it is submitted."""

    def begin(self, name: str) -> None:
        """Measure half of the run of a job, unless an earlier job did."""
        record = tiny_run(name)
        if self.under_way[name].arguments[0] == "run":
            self.store.begin_run(head_of(record))
            for measurement in record.measurements[:3]:
                self.store.add_measurement(name, measurement)

    def finish(self, name: str, **values: float) -> None:
        """Measure the whole run of a job, and end the job."""
        record = tiny_run(name, **values)
        if self.under_way[name].arguments[0] == "run":
            self.store.begin_run(head_of(record))
            there = 0
        else:
            there = len(self.store.get_run(name).measurements)
        for measurement in record.measurements[there:]:
            self.store.add_measurement(name, measurement)
        self.store.end_run(record)
        self.end(name, 0)

    def finish_job(self, job: Job) -> None:
        """Finish a job at once."""
        self.finish(job.name)

    def end(self, name: str, status: int | None, output: str = "") -> None:
        del self.under_way[name]
        self.ended[name] = JobReport(JobState.ENDED, status, output)

    def lose(self, name: str) -> None:
        """Lose all trace of a job."""
        del self.under_way[name]
        self.ended[name] = JobReport(JobState.ENDED, None, "no trace of it", is_lost=True)

    def stop(self, name: str) -> None:
        """End a job whose run was stopped: the run can be resumed."""
        record = self.store.get_run(name)
        self.store.end_run(record.model_copy(update={"state": RunState.STOPPED}))
        self.end(name, 130)


class SimulatedEngine(Engine):
    """Submits to a cluster."""

    title = "simulated"
    is_of_machine = True

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(EngineSettings(None, Path("/nonexistent")))
        self.cluster = cluster

    def reserve(self) -> bool:
        return len(self.cluster.under_way) < self.cluster.rooms

    def expected_key(self, name: str) -> str:
        return key_of(name)

    def may_go_on(self, key: str) -> bool:
        return key.startswith("here/")

    def submit(self, job: Job) -> str:
        self._check()
        assert job.name not in self.cluster.under_way, "a job that is under way was submitted again"
        assert len(self.cluster.under_way) < self.cluster.rooms, "the machine is measuring already"
        self.cluster.submitted.append(job)
        self.cluster.under_way[job.name] = job
        self.cluster.on_submit(job)
        return key_of(job.name)

    def state(self, key: str) -> JobReport:
        self._check()
        name = key.rpartition("/")[2]
        return JobReport(JobState.RUNNING) if name in self.cluster.under_way else self.cluster.ended.get(name, JobReport(JobState.ENDED))

    def cancel(self, key: str) -> None:
        self._check()
        self.cluster.cancelled.append(key)

    def find(self, name: str) -> str | None:
        self._check()
        return key_of(name) if name in self.cluster.under_way else None

    def _check(self) -> None:
        if self.cluster.is_down:
            raise EngineError("the cluster is down")
