"""Runs jobs on this machine, one at a time, under the machine's lock. The queue is in the store, so it survives a reboot.

A job inherits the lock, so it holds the machine until it ends, even if the dispatcher ends first. The lock file names the holder's run, so
another dispatcher can find the job.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from ringroad_lab.errors import LabError, MachineBusyError
from ringroad_lab.fleet.engine.interface import Engine, EngineError, EngineSettings, Job, JobReport, JobState
from ringroad_lab.fleet.engine.job_environment import BED_VARIABLE, job_environment
from ringroad_lab.fleet.engine.job_folder import KEPT_JOBS, all_but_newest, last_words, make_job_folder
from ringroad_lab.sandbox.machine_lock import LOCK_DESCRIPTOR_VARIABLE, Holder, machine_holder, take_machine, write_holder

# The first signal ends a run after the current trial, the second at once.
_SECOND_SIGNAL_S = 60.0
_KILL_S = 90.0


class LocalEngine(Engine):
    """Runs jobs on this machine."""

    title = "This machine: one run at a time"
    is_of_machine = True

    def __init__(self, settings: EngineSettings) -> None:
        """Take the settings, and create the folder for the output of jobs.

        Raises:
            LabError: the folder cannot be created.
        """
        super().__init__(settings)
        self._machine = socket.gethostname()
        self._lock: int | None = None
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._cancelled_at: dict[str, float] = {}
        make_job_folder(settings.folder)

    def reserve(self) -> bool:
        """Take the machine's lock; return False if a run holds it."""
        for process in self._processes.values():
            process.poll()
        if self._lock is None:
            with suppress(MachineBusyError):
                self._lock = take_machine("")
        return self._lock is not None

    def release(self) -> None:
        """Release the lock. A submitted job holds the lock itself."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def expected_key(self, name: str) -> str:
        """Return machine and name."""
        return f"{self._machine}/{name}"

    def may_go_on(self, key: str) -> bool:
        """Return whether the job ran on this machine: a run must not mix results of several machines."""
        return key.rpartition("/")[0] == self._machine

    def submit(self, job: Job) -> str:
        """Start a process.

        Raises:
            EngineError: the machine is busy, or the process cannot be started.
        """
        key = self.expected_key(job.name)
        try:
            lock = take_machine(job.name) if self._lock is None else self._lock
        except LabError as error:
            raise EngineError(str(error)) from error
        self._lock = None
        self._cancelled_at.pop(key, None)
        environment = {**os.environ, **job_environment(job.name), LOCK_DESCRIPTOR_VARIABLE: str(lock)}
        if job.beds:
            environment[BED_VARIABLE] = next(iter(job.beds))
        if self.settings.store is not None:
            # The store is no argument, which all users can see: its location may contain a password.
            environment["RINGROAD_LAB_STORE"] = self.settings.store
        try:
            write_holder(lock, job.name)
            self._forget_old_outputs()
            with self._output(key).open("wb") as output:
                self._processes[key] = subprocess.Popen(
                    [*self.settings.program, *job.arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    pass_fds=(lock,),
                    # Ctrl-C goes to the dispatcher only, which stops the run itself.
                    start_new_session=True,
                )
        except OSError as error:
            raise EngineError(f"the run cannot be started: {error.filename or ''} {error.strerror}") from error
        finally:
            os.close(lock)
        return key

    def state(self, key: str) -> JobReport:
        """Check the process, or if another dispatcher started it, the holder of the machine's lock.

        Raises:
            EngineError: the machine's lock cannot be read.
        """
        process = self._processes.get(key)
        if process is not None and process.poll() is None:
            return JobReport(JobState.RUNNING)
        machine, _, name = key.rpartition("/")
        if machine == self._machine and self.find(name) is not None:
            return JobReport(JobState.RUNNING)
        return JobReport(JobState.ENDED, process.returncode if process is not None else None, last_words(self._output(key)))

    def cancel(self, key: str) -> None:
        """Send the run SIGTERM; a later call sends it again after `_SECOND_SIGNAL_S`, or SIGKILL after `_KILL_S`.

        Raises:
            EngineError: the machine's lock cannot be read.
        """
        if (pid := self._pid(key)) is None:
            return
        now = time.monotonic()
        began = self._cancelled_at.get(key)
        if began is None:
            self._cancelled_at[key] = now
            _send(pid, signal.SIGTERM)
        elif now - began > _KILL_S:
            _send(pid, signal.SIGKILL)
        elif now - began > _SECOND_SIGNAL_S:
            _send(pid, signal.SIGTERM)

    def find(self, name: str) -> str | None:
        """Return the key if the run of this name holds the machine's lock.

        Raises:
            EngineError: the machine's lock cannot be read.
        """
        holder = self._holder()
        return self.expected_key(name) if holder is not None and holder.run_id == name else None

    def _pid(self, key: str) -> int | None:
        process = self._processes.get(key)
        if process is not None and process.poll() is None:
            return process.pid
        holder = self._holder()
        # The PID is not reused while the process holds the lock.
        is_it = holder is not None and self.expected_key(holder.run_id) == key and holder.pid != os.getpid()
        return holder.pid if holder is not None and is_it else None

    def _holder(self) -> Holder | None:
        try:
            return machine_holder()
        except LabError as error:
            raise EngineError(str(error)) from error

    def _output(self, key: str) -> Path:
        return self.settings.folder / f"{key.rpartition('/')[2]}.log"

    def _forget_old_outputs(self) -> None:
        for path in all_but_newest(self.settings.folder.glob("*.log"), KEPT_JOBS):
            path.unlink(missing_ok=True)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
