"""Runs jobs with tmt on the machines of a bed, over SSH. A job is one run of tmt in its own process on this machine; no server is needed.

The state of a job is in a folder with the job's name, so every dispatcher of this machine finds it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ringroad_lab.fleet.engine.interface import Engine, EngineError, EngineSettings, Job, JobReport, JobState
from ringroad_lab.fleet.engine.job_folder import all_but_newest, last_words, make_job_folder
from ringroad_lab.fleet.engine.tmt_plan import STATUS_FILE, TmtSettings, ssh_environment, stop_command, write_plan
from ringroad_lab.fleet.engine.tmt_process import GO, JobFiles, JobInstructions, end_leftovers, find_process, keep_process
from ringroad_lab.fleet.inventory import BedSettings

_KEPT_JOBS = 100
# The first signal ends the run after its trial, the second ends tmt, the third kills tmt; then the machines are cleaned up.
_SIGNALS_S = ((0.0, signal.SIGTERM), (120.0, signal.SIGTERM), (180.0, signal.SIGTERM), (900.0, signal.SIGKILL))


class TmtEngine(Engine):
    """Runs jobs with tmt."""

    title = "tmt: on the machines of a bed, over SSH"
    settings_type = TmtSettings
    is_of_machine = True
    outlives_dispatchers = True

    def __init__(self, settings: EngineSettings) -> None:
        """Take the settings, and create the folder of jobs.

        Raises:
            LabError: the folder cannot be created.
        """
        super().__init__(settings)
        assert isinstance(settings.own, TmtSettings)
        self._own = settings.own
        self._machine = socket.gethostname()
        self._folder = settings.folder.absolute() / "tmt"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._signals: dict[str, tuple[float, int]] = {}
        """Time at which the end of a job was requested, and the number of signals sent, by key."""
        make_job_folder(self._folder)

    def expected_key(self, name: str) -> str:
        """Return machine and name."""
        return f"{self._machine}/{name}"

    def submit(self, job: Job) -> str:
        """Start tmt.

        Raises:
            EngineError: no bed is free, a host key is unknown, or tmt cannot be started.
        """
        key, files = self.expected_key(job.name), self._files(job.name)
        if not job.beds:
            raise EngineError("tmt needs a bed: fleet.toml has none, or none that this request is allowed to use")
        program = shutil.which(self._own.program)
        if program is None:
            raise EngineError(f"there is no program {self._own.program}: install tmt, or set program in [engine.tmt]")
        with self._alone():
            if find_process(files) is not None:
                return key
            name, bed = self._free_bed(job.beds)
            end_leftovers(files)
            try:
                self._forget_old_jobs()
                shutil.rmtree(files.folder, ignore_errors=True)
                # The folder will contain the store's location with its password.
                files.folder.mkdir(mode=0o700)
                write_plan(files.tree, job, name, bed, self._own, self.settings.store)
                tmt = (program, "--root", str(files.tree))
                JobInstructions(name, tmt, stop_command(job.name, bed, self._own), ssh_environment(self._own)).write(files.orders)
                self._start(files)
            except OSError as error:
                raise EngineError(f"tmt cannot be started: {error.filename or ''} {error.strerror}") from error
        return key

    def state(self, key: str) -> JobReport:
        """Check the job's process and its files. A job of another machine, which is gone, has ended."""
        machine, _, name = key.rpartition("/")
        if machine != self._machine:
            return JobReport(JobState.ENDED)
        files = self._files(name)
        if find_process(files) is not None:
            return JobReport(JobState.RUNNING)
        # A killed process had no time to clean up.
        end_leftovers(files)
        return JobReport(JobState.ENDED, _exit_status(files), last_words(_results(files, "output.txt") or files.output))

    def cancel(self, key: str) -> None:
        """Send the job's process a signal, and further signals at the times in `_SIGNALS_S` if it does not end."""
        machine, _, name = key.rpartition("/")
        pid = find_process(self._files(name))
        if pid is None or machine != self._machine:
            return
        since, sent = self._signals.setdefault(key, (time.monotonic(), 0))
        while sent < len(_SIGNALS_S) and time.monotonic() - since >= _SIGNALS_S[sent][0]:
            with suppress(ProcessLookupError):
                os.kill(pid, _SIGNALS_S[sent][1])
            sent += 1
        self._signals[key] = (since, sent)

    def find(self, name: str) -> str | None:
        """Return the key if the process of the job with this name is running."""
        return None if find_process(self._files(name)) is None else self.expected_key(name)

    def _start(self, files: JobFiles) -> None:
        program = [sys.executable, "-P", "-m", "ringroad_lab.fleet.engine.tmt_process", str(files.folder)]
        with files.output.open("wb") as output:
            process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        self._processes.append(process)
        assert process.stdin
        with process.stdin:
            keep_process(files, process.pid)
            # The job starts only after its process is recorded: if this process is killed before, the other one ends.
            process.stdin.write(GO.encode())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other dispatchers of this machine from submitting."""
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _free_bed(self, beds: Mapping[str, BedSettings]) -> tuple[str, BedSettings]:
        taken = set()
        for files in self._jobs():
            if find_process(files) is not None:
                with suppress(OSError, ValueError):
                    taken.add(JobInstructions.read(files.orders).bed)
        for name, bed in beds.items():
            if name not in taken:
                return name, bed
        raise EngineError(f"no bed is free: runs use {', '.join(sorted(taken))}")

    def _jobs(self) -> list[JobFiles]:
        return [JobFiles(path) for path in self._folder.iterdir() if path.is_dir()]

    def _files(self, name: str) -> JobFiles:
        for process in self._processes:
            process.poll()
        return JobFiles(self._folder / name)

    def _forget_old_jobs(self) -> None:
        ended = (files.folder for files in self._jobs() if find_process(files) is None)
        for folder in all_but_newest(ended, _KEPT_JOBS):
            shutil.rmtree(folder, ignore_errors=True)


def _results(files: JobFiles, name: str) -> Path | None:
    """Return a file of the test's results; None if it was not fetched."""
    return next(iter(files.run.glob(f"plan/execute/data/**/{name}")), None)


def _exit_status(files: JobFiles) -> int | None:
    file = _results(files, STATUS_FILE)
    try:
        status = int(file.read_text()) if file else None
    except (OSError, ValueError):
        return None
    # The shell reports a signal as 128 + its number.
    return 128 - status if status is not None and status > 130 else status
