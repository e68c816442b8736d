"""Slurm: a node is a machine of a bed, and a job has a whole bed.

What was seen of Slurm decides how it is used:

- Its answer to sbatch is not durable, and numbers of jobs are given again. So the key of a job is its name, the run's id; a job of which
  there is no trace was lost, and is submitted again. `--dependency=singleton` has two of one name follow each other.
- Where a node's slurmd is lost, Slurm begins the job anew, while its first copy may go on. So a job goes on only on the nodes where it
  began, which the batch script writes down once; and a run takes a lease on its bed.
- A job that is begun anew waits for two minutes. It is released as soon as its nodes are back: their slurmd has ended the first copy.
- A heterogeneous job cannot ask for its parts to be of one bed; matching OR of features (`[bed-a|bed-b]`) can. The batch script runs on the
  first node by name, which has to be the generator. `--batch=generator` would have it run there whatever the names are, but Slurm 22.05
  looks for the script on the first node all the same when nodes register, and begins the job anew as it does not find it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ringroad_lab.fleet.engine.interface import Engine, EngineError, EngineSettings, Job, JobReport, JobState
from ringroad_lab.fleet.engine.job_folder import KEPT_JOBS, all_but_newest, last_words, make_job_folder
from ringroad_lab.fleet.engine.slurm_queue import QueuedJob, SlurmPrograms, SlurmQueue, usable_nodes
from ringroad_lab.fleet.engine.slurm_settings import SlurmSettings
from ringroad_lab.fleet.inventory import Bed, fleet_file
from ringroad_lab.run.job import job_environment

_SCRIPT = Path(__file__).with_name("slurm_batch.sh")
# A run that is told to end does so after the trial under way; after that time Slurm ends it.
_SECOND_SIGNAL_S = 60.0
# From here on a status tells of a signal: also that of a run that was told to stop.
_SIGNAL_STATUS = 128


@dataclass(frozen=True)
class _Files:
    """What the batch script leaves of a job in the folder that all share."""

    folder: Path
    name: str

    @property
    def beds(self) -> Path:
        """The `fleet.toml` of the job's beds."""
        return self.folder / f"{self.name}.toml"

    def began_on(self) -> str:
        """Return the nodes where the job began, joined by commas; empty where it did not."""
        return self._read("nodes")

    def ending(self) -> tuple[int, int] | None:
        """Return the job's number and its exit status; None where it has not ended, or was killed."""
        try:
            number, status = map(int, self._read("exit").split())
        except ValueError:
            return None
        return number, status

    def forget_ending(self) -> None:
        """Have none: a new job of this name is to be submitted."""
        with suppress(OSError):
            (self.folder / f"{self.name}.exit").unlink(missing_ok=True)

    def last_words(self) -> str:
        """Return the end of what it said."""
        return last_words(self.folder / f"{self.name}.log")

    def _read(self, what: str) -> str:
        with suppress(OSError):
            return (self.folder / f"{self.name}.{what}").read_text(errors="replace").strip()
        return ""


class SlurmEngine(Engine):
    """Submits jobs to Slurm, by its programs."""

    name = "slurm"
    title = "Slurm: a run at a time on each bed"
    settings_type = SlurmSettings

    def __init__(self, settings: EngineSettings) -> None:
        """Take the settings, and make the folder that nodes and dispatchers share.

        Raises:
            LabError: it cannot be made.
        """
        super().__init__(settings)
        assert isinstance(settings.own, SlurmSettings)
        self._own = settings.own
        self._programs = SlurmPrograms(self._own.config, self._own.answer_within_s)
        self._queue = SlurmQueue(self._programs)
        self._folder = Path(self._own.folder) if self._own.folder else settings.folder.absolute()
        self._end_requested_at: dict[str, float] = {}
        self._without_bed_since: dict[str, float] = {}
        make_job_folder(self._folder, "[engine.slurm] folder in fleet.toml names another")

    def reserve(self) -> bool:
        """Whether Slurm has not got more to do than it can begin soon: what waits in the store is in the dispatchers' order.

        Raises:
            EngineError: Slurm cannot be asked now.
        """
        return self._queue.waiting() < self._own.most_waiting

    def may_go_on(self, key: str) -> bool:
        """Whether the nodes where it began take jobs: figures of several machines would be in one run else.

        Raises:
            EngineError: Slurm cannot be asked now.
        """
        nodes = self._files(key).began_on()
        return not nodes or self._are_usable(nodes)

    def submit(self, job: Job) -> str:
        """Hand a job to Slurm, unless it has it already.

        Raises:
            EngineError: Slurm cannot be asked, or does not take it.
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
            # Not as an argument, which all users see: it may hold a password.
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
            # It may have been taken all the same.
            self._queue.forget()
            if self.find(job.name) is None:
                raise
        self._queue.forget()
        return job.name

    def state(self, key: str) -> JobReport:
        """Look for the job in Slurm, then for what it left; see to one that Slurm begins anew.

        Raises:
            EngineError: Slurm cannot be asked now.
        """
        files = self._files(key)
        if not self._queue.jobs(key):
            # What was asked a moment ago may be older than a job that another dispatcher submitted.
            self._queue.forget()
        jobs, under_way = self._queue.jobs(key), self._under_way(key)
        if under_way is not None:
            if under_way.state is JobState.QUEUED and (why := self._see_to_waiting(under_way, files)) is not None:
                return JobReport(JobState.ENDED, _status(files, under_way), why)
            return JobReport(under_way.state)
        if not jobs and files.ending() is None:
            return JobReport(JobState.ENDED, None, f"Slurm has no trace of it, and {self._folder} has none of its end", is_lost=True)
        last = jobs[-1] if jobs else None
        said = files.last_words()
        if last is not None and not files.began_on():
            said += f"\nSlurm: {last.job_state[0]} {last.state_reason}; it left nothing in {self._folder}: do the nodes share it?"
        return JobReport(JobState.ENDED, _status(files, last), said.strip())

    def cancel(self, key: str) -> None:
        """Take a job that waits back; tell one that runs to end, and have Slurm end it if it goes on for long.

        Raises:
            EngineError: Slurm cannot be asked now.
        """
        job = self._under_way(key)
        if job is None:
            return
        now = time.monotonic()
        told_at = self._end_requested_at.get(key)
        if job.state is JobState.QUEUED:
            self._programs.call("scancel", "--state=PENDING", f"--name={key}")
        elif told_at is None:
            self._programs.call("scancel", "--signal=USR1", "--batch", f"--name={key}")
            self._end_requested_at[key] = now
        elif now - told_at > _SECOND_SIGNAL_S:
            self._programs.call("scancel", f"--name={key}")
        self._queue.forget()

    def find(self, name: str) -> str | None:
        """Return the name where a job of it waits or runs.

        Raises:
            EngineError: Slurm cannot be asked now.
        """
        return None if self._under_way(name) is None else name

    def _under_way(self, name: str) -> QueuedJob | None:
        """Return the job of a name that has not ended. Of two, which a lost answer may lead to, the one that came first."""
        return next((job for job in self._queue.jobs(name) if job.state is not JobState.ENDED), None)

    def _files(self, name: str) -> _Files:
        return _Files(self._folder, name)

    def _are_usable(self, nodes: str) -> bool:
        wanted = set(nodes.split(","))
        return wanted <= usable_nodes(self._programs, wanted)

    def _see_to_waiting(self, job: QueuedJob, files: _Files) -> str | None:
        """See to a job that waits though it began: Slurm begins it anew. Return why it was taken back, where it was."""
        nodes = files.began_on()
        if not nodes or not (job.restart_cnt or job.required_nodes):
            return None
        ending = files.ending()
        if job.restart_cnt and ending is not None and ending[0] == job.job_id and ending[1] < _SIGNAL_STATUS:
            # Its first copy went on though Slurm had lost it, and was not ended by a signal, as by its slurmd that came back.
            return self._take_back(job, files.last_words())
        if not self._are_usable(nodes):
            since = self._without_bed_since.setdefault(job.name, time.monotonic())
            if time.monotonic() - since > self._own.bed_patience_s:
                return self._take_back(job, f"the nodes {nodes} where it began are down or drained")
        else:
            self._without_bed_since.pop(job.name, None)
        if job.restart_cnt and not job.required_nodes:
            self._programs.call("scontrol", "update", f"JobId={job.job_id}", f"ReqNodeList={nodes}")
        elif job.restart_cnt and job.state_reason == "BeginTime" and job.name not in self._without_bed_since:
            self._programs.call("scontrol", "update", f"JobId={job.job_id}", "StartTime=now")
        else:
            return None
        self._queue.forget()
        return None

    def _take_back(self, job: QueuedJob, why: str) -> str:
        self._programs.call("scancel", "--state=PENDING", f"--name={job.name}")
        self._queue.forget()
        return why

    def _beds(self, beds: Mapping[str, Bed], began_on: str) -> Mapping[str, Bed]:
        """Return those of some beds that one job can ask for: of as many machines each; of several numbers, that with most usable beds.

        Raises:
            EngineError: Slurm cannot be asked now, or has not got the bed where the run began any more.
        """
        if began_on and beds:
            beds = {name: bed for name, bed in beds.items() if _nodes(bed) == began_on}
            if not beds:
                raise EngineError(
                    f"the run began on the nodes {began_on}, which are none of its beds any more: `cancel` and `retry` its request"
                )
        by_size: defaultdict[int, dict[str, Bed]] = defaultdict(dict)
        for name, bed in beds.items():
            by_size[len(set(bed.machines.values()))][name] = bed
        if len(by_size) <= 1:
            return beds
        usable = usable_nodes(self._programs, {node for bed in beds.values() for node in bed.machines.values()})
        return max(by_size.values(), key=lambda group: sum(usable.issuperset(bed.machines.values()) for bed in group.values()))

    def _options(self, name: str, beds: Mapping[str, Bed], began_on: str) -> list[str]:
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
    """Return the exit status: as the batch script wrote it, unless that was another job of this name; else as Slurm has it."""
    ending = files.ending()
    if ending is not None and (job is None or ending[0] == job.job_id):
        return ending[1]
    return job.exit_code if job else None


def _nodes(bed: Bed) -> str:
    return ",".join(sorted(set(bed.machines.values())))


def _machines(bed: Bed) -> str:
    return ",".join(f"{role}={node}" for role, node in bed.machines.items())
