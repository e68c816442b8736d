"""Runs jobs in Slurm: a node is a machine of a bed, and a job gets a whole bed.

Observed behaviour of Slurm, and its consequences:

- The answer of sbatch is not durable, and Slurm reuses job numbers. So the key of a job is its name, the run's id. A job without any trace
  was lost, and is submitted again. With `--dependency=singleton`, two jobs of one name run one after the other.
- After the loss of a node's slurmd, Slurm requeues the job, while its first copy may continue. So a job continues only on the nodes where
  it began, which the batch script records once; and a run takes a lease on its bed.
- A requeued job waits for two minutes (`cred_expire`), in which its first copy ends. Released before that, it can meet its first copy:
  then Slurm drains the node for a duplicate job, and holds the job.
- A heterogeneous job cannot request that all its parts come from one bed; a matching OR of features (`[bed-a|bed-b]`) can. The batch
  script runs on the first node by name, which must be the generator. `--batch=generator` would select the generator regardless of names.
  But when nodes register, Slurm 22.05 still expects the script on the first node, does not find it there, and requeues the job.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ringroad_lab.fleet.engine.interface import Engine, EngineError, EngineSettings, Job, JobReport, JobState
from ringroad_lab.fleet.engine.job_environment import job_environment
from ringroad_lab.fleet.engine.job_folder import KEPT_JOBS, all_but_newest, last_words, make_job_folder
from ringroad_lab.fleet.engine.slurm_queue import QueuedJob, SlurmPrograms, SlurmQueue, usable_nodes
from ringroad_lab.fleet.engine.slurm_settings import SlurmSettings
from ringroad_lab.fleet.inventory import BedSettings, fleet_file

_SCRIPT = Path(__file__).with_name("slurm_batch.sh")
# A run that gets the signal to stop ends after its current trial; after this time Slurm ends it.
_SECOND_SIGNAL_S = 60.0
# Statuses from here on mean a signal, including the status of a run that was signalled to stop.
_SIGNAL_STATUS = 128


@dataclass(frozen=True)
class _Files:
    """Files that the batch script writes about a job in the shared folder."""

    folder: Path
    name: str

    @property
    def beds(self) -> Path:
        """The `fleet.toml` of the job's beds."""
        return self.folder / f"{self.name}.toml"

    def began_on(self) -> str:
        """Return the nodes where the job began, joined by commas; empty if it did not begin."""
        return self._read("nodes")

    def ending(self) -> tuple[int, int] | None:
        """Return the job's number and its exit status; None if the job has not ended, or was killed."""
        try:
            number, status = map(int, self._read("exit").split())
        except ValueError:
            return None
        return number, status

    def forget_ending(self) -> None:
        """Delete the recorded end before a new job of this name is submitted."""
        with suppress(OSError):
            (self.folder / f"{self.name}.exit").unlink(missing_ok=True)

    def last_words(self) -> str:
        """Return the end of the job's output."""
        return last_words(self.folder / f"{self.name}.log")

    def _read(self, what: str) -> str:
        with suppress(OSError):
            return (self.folder / f"{self.name}.{what}").read_text(errors="replace").strip()
        return ""


class SlurmEngine(Engine):
    """Submits jobs to Slurm with Slurm's command line programs."""

    title = "Slurm: one run at a time on each bed"
    settings_type = SlurmSettings

    def __init__(self, settings: EngineSettings) -> None:
        """Take the settings, and create the folder that nodes and dispatchers share.

        Raises:
            LabError: the folder cannot be created.
        """
        super().__init__(settings)
        assert isinstance(settings.own, SlurmSettings)
        self._own = settings.own
        self._programs = SlurmPrograms(self._own.config, self._own.answer_within_s)
        self._queue = SlurmQueue(self._programs)
        self._folder = Path(self._own.folder) if self._own.folder else settings.folder.absolute()
        self._end_requested_at: dict[str, float] = {}
        self._without_bed_since: dict[str, float] = {}
        make_job_folder(self._folder, "choose another with [engine.slurm] folder in fleet.toml")

    def reserve(self) -> bool:
        """Return whether fewer than `most_waiting` jobs wait in Slurm. Further requests wait in the store, in the order of the dispatchers.

        Raises:
            EngineError: Slurm cannot be queried now.
        """
        return self._queue.waiting() < self._own.most_waiting

    def may_go_on(self, key: str) -> bool:
        """Return whether the nodes where the run began accept jobs: a run must not mix results of several machines.

        Raises:
            EngineError: Slurm cannot be queried now.
        """
        nodes = self._files(key).began_on()
        return not nodes or self._are_usable(nodes)

    def submit(self, job: Job) -> str:
        """Submit a job to Slurm, unless Slurm already has it.

        Raises:
            EngineError: Slurm cannot be queried, or does not accept the job.
        """
        self._queue.forget()
        if self.find(job.name) is not None:
            return job.name
        self._end_requested_at.pop(job.name, None)
        self._without_bed_since.pop(job.name, None)
        self._forget_old_files()
        files = self._files(job.name)
        files.forget_ending()
        began_on = files.began_on()
        beds = self._beds(job.beds, began_on)
        environment = job_environment(job.name)
        if self.settings.store is not None:
            # The store is no argument, which all users can see: its location may contain a password.
            environment["RINGROAD_LAB_STORE"] = self.settings.store
        try:
            files.beds.write_text(fleet_file(beds))
        except OSError as error:
            raise EngineError(f"{files.beds}: {error.strerror}") from error
        triples = [word for name, bed in beds.items() for word in (name, _nodes(bed), _machines(bed))]
        script = [str(_SCRIPT), str(self._folder), self._own.environment_file or "", str(len(beds)), *triples]
        try:
            self._programs.call(
                "sbatch", *self._options(job.name, beds, began_on), *script, *self._own.program, *job.arguments, **environment
            )
        except EngineError:
            # Slurm may nevertheless have accepted the job.
            self._queue.forget()
            if self.find(job.name) is None:
                raise
        self._queue.forget()
        return job.name

    def state(self, key: str) -> JobReport:
        """Query Slurm, then read the files of the job; handle a job that Slurm requeued.

        Raises:
            EngineError: Slurm cannot be queried now.
        """
        files = self._files(key)
        if not self._queue.jobs(key):
            # The cached queue may be older than a job that another dispatcher submitted.
            self._queue.forget()
        jobs, under_way = self._queue.jobs(key), self._under_way(key)
        if under_way is not None:
            if under_way.state is JobState.QUEUED and (why := self._handle_requeued(under_way, files)) is not None:
                return JobReport(JobState.ENDED, _status(files, under_way), why)
            return JobReport(under_way.state)
        if not jobs and files.ending() is None:
            return JobReport(JobState.ENDED, None, f"Slurm has no trace of the job, and {self._folder} no exit status", is_lost=True)
        last = jobs[-1] if jobs else None
        output = files.last_words()
        if last is not None and not files.began_on():
            output += f"\nSlurm: {last.job_state[0]} {last.state_reason}; the job wrote no files to {self._folder}: do the nodes share it?"
        return JobReport(JobState.ENDED, _status(files, last), output.strip())

    def cancel(self, key: str) -> None:
        """Cancel a waiting job. Signal a running job to stop, and have Slurm end it if it still runs after `_SECOND_SIGNAL_S`.

        Raises:
            EngineError: Slurm cannot be queried now.
        """
        job = self._under_way(key)
        if job is None:
            return
        now = time.monotonic()
        requested_at = self._end_requested_at.get(key)
        if job.state is JobState.QUEUED:
            self._programs.call("scancel", "--state=PENDING", f"--name={key}")
        elif requested_at is None:
            self._programs.call("scancel", "--signal=USR1", "--batch", f"--name={key}")
            self._end_requested_at[key] = now
        elif now - requested_at > _SECOND_SIGNAL_S:
            self._programs.call("scancel", f"--name={key}")
        self._queue.forget()

    def find(self, name: str) -> str | None:
        """Return the name if a job of this name waits or runs.

        Raises:
            EngineError: Slurm cannot be queried now.
        """
        return None if self._under_way(name) is None else name

    def _under_way(self, name: str) -> QueuedJob | None:
        """Return the job of this name that has not ended; the first of two, which a lost answer can cause."""
        return next((job for job in self._queue.jobs(name) if job.state is not JobState.ENDED), None)

    def _files(self, name: str) -> _Files:
        return _Files(self._folder, name)

    def _are_usable(self, nodes: str) -> bool:
        wanted = set(nodes.split(","))
        return wanted <= usable_nodes(self._programs, wanted)

    def _handle_requeued(self, job: QueuedJob, files: _Files) -> str | None:
        """Handle a job that waits although it began: Slurm requeued it. If it was cancelled, return the reason."""
        nodes = files.began_on()
        if not nodes or not (job.restart_cnt or job.required_nodes):
            return None
        ending = files.ending()
        if job.restart_cnt and ending is not None and ending[0] == job.job_id and ending[1] < _SIGNAL_STATUS:
            # The first copy ended by itself after Slurm lost it. A slurmd that comes back ends it by a signal.
            return self._cancel_waiting(job, files.last_words())
        if not self._are_usable(nodes):
            since = self._without_bed_since.setdefault(job.name, time.monotonic())
            if time.monotonic() - since > self._own.bed_patience_s:
                return self._cancel_waiting(job, f"the nodes {nodes} where the run began are down or drained")
        else:
            self._without_bed_since.pop(job.name, None)
        if job.restart_cnt and not job.required_nodes:
            self._programs.call("scontrol", "update", f"JobId={job.job_id}", f"ReqNodeList={nodes}")
            self._queue.forget()
        return None

    def _cancel_waiting(self, job: QueuedJob, why: str) -> str:
        self._programs.call("scancel", "--state=PENDING", f"--name={job.name}")
        self._queue.forget()
        return why

    def _beds(self, beds: Mapping[str, BedSettings], began_on: str) -> Mapping[str, BedSettings]:
        """Return the beds that one job can request: all have the same number of machines, the number with most usable beds.

        Raises:
            EngineError: Slurm cannot be queried now, or the bed where the run began is no longer one of the beds.
        """
        if began_on and beds:
            beds = {name: bed for name, bed in beds.items() if _nodes(bed) == began_on}
            if not beds:
                raise EngineError(
                    f"the run began on the nodes {began_on}, which are no longer one of its beds: `cancel` and `retry` its request"
                )
        by_size: defaultdict[int, dict[str, BedSettings]] = defaultdict(dict)
        for name, bed in beds.items():
            by_size[len(set(bed.machines.values()))][name] = bed
        if len(by_size) <= 1:
            return beds
        usable = usable_nodes(self._programs, {node for bed in beds.values() for node in bed.machines.values()})
        return max(by_size.values(), key=lambda group: sum(usable.issuperset(bed.machines.values()) for bed in group.values()))

    def _options(self, name: str, beds: Mapping[str, BedSettings], began_on: str) -> list[str]:
        own = self._own
        options = [
            *("--parsable", f"--job-name={name}", f"--comment={name}", "--dependency=singleton", "--exclusive", "--mem=0", "--requeue"),
            *("--export=ALL", "--input=/dev/null", f"--output={self._folder}/{name}.log", "--open-mode=append", "--chdir=/"),
            f"--signal=B:USR1@{own.stop_before_limit_s}",
        ]
        chosen = {
            "partition": own.partition,
            "account": own.account,
            "qos": own.qos,
            "time": own.time_limit,
            "licenses": own.licenses,
            "nodelist": began_on,
        }
        options += [f"--{option}={value}" for option, value in chosen.items() if value]
        if beds:
            features = "|".join(f"bed-{bed}" for bed in beds)
            features = f"[{features}]" if len(beds) > 1 else features
            machines = len(set(next(iter(beds.values())).machines.values()))
            options += [f"--nodes={machines}", f"--constraint={features}"]
        else:
            options += ["--nodes=1"]
        return [*options, *own.options]

    def _forget_old_files(self) -> None:
        for path in all_but_newest(self._folder.glob("*.log"), KEPT_JOBS):
            for each in (path, path.with_suffix(".nodes"), path.with_suffix(".exit"), path.with_suffix(".toml")):
                each.unlink(missing_ok=True)


def _status(files: _Files, job: QueuedJob | None) -> int | None:
    """Return the exit status from the batch script's record; if another job of this name wrote it, the status from Slurm."""
    ending = files.ending()
    if ending is not None and (job is None or ending[0] == job.job_id):
        return ending[1]
    return job.exit_code if job else None


def _nodes(bed: BedSettings) -> str:
    return ",".join(sorted(set(bed.machines.values())))


def _machines(bed: BedSettings) -> str:
    return ",".join(f"{role}={node}" for role, node in bed.machines.items())
