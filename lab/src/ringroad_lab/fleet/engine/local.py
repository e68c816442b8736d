"""This machine: one job at a time, under the machine's lock. The queue is the store's, so that it outlives a reboot.

A job inherits the lock, so it holds the machine for as long as it lives, whatever becomes of the dispatcher; and who holds the lock names
its run, so that another dispatcher finds the job again.
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
from ringroad_lab.fleet.engine.job_folder import KEPT_JOBS, all_but_newest, last_words, make_job_folder
from ringroad_lab.run.job import BED_VARIABLE, job_environment
from ringroad_lab.run.machine_lock import LOCK_DESCRIPTOR_VARIABLE, Holder, machine_holder, take_machine, write_holder

# The first signal ends a run after the trial under way, the second at once.
_SECOND_SIGNAL_S = 60.0
_KILL_S = 90.0


class LocalEngine(Engine):
    """Carries out jobs on this machine."""

    name = "local"
    title = "This machine: one run at a time"
    is_of_machine = True

    def __init__(self, settings: EngineSettings) -> None:
        """Take the settings, and make the folder for what jobs say.

        Raises:
            LabError: it cannot be made.
        """
        super().__init__(settings)
        self._machine = socket.gethostname()
        self._lock: int | None = None
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._cancelled_at: dict[str, float] = {}
        make_job_folder(settings.folder)

    def reserve(self) -> bool:
        """Take the machine's lock; False where a run has it."""
        for process in self._processes.values():
            process.poll()
        if self._lock is None:
            with suppress(MachineBusyError):
                self._lock = take_machine("")
        return self._lock is not None

    def release(self) -> None:
        """Let the lock go. A job that was submitted holds it by itself."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def expected_key(self, name: str) -> str:
        """Return machine and name."""
        return f"{self._machine}/{name}"

    def may_go_on(self, key: str) -> bool:
        """Whether it was this machine's: figures of several would be in one run else."""
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
            # Not as an argument, which all users see: it may hold a password.
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
                    # Ctrl-C is the dispatcher's, which tells the run itself.
                    start_new_session=True,
                )
        except OSError as error:
            raise EngineError(f"the run cannot be started: {error.filename or ''} {error.strerror}") from error
        finally:
            os.close(lock)
        return key

    def state(self, key: str) -> JobReport:
        """Look at the process; where another dispatcher started it, at who holds the machine.

        Raises:
            EngineError: the machine's lock cannot be looked at.
        """
        process = self._processes.get(key)
        if process is not None and process.poll() is None:
            return JobReport(JobState.RUNNING)
        machine, _, name = key.rpartition("/")
        if machine == self._machine and self.find(name) is not None:
            return JobReport(JobState.RUNNING)
        return JobReport(JobState.ENDED, process.returncode if process is not None else None, last_words(self._output(key)))

    def cancel(self, key: str) -> None:
        """Send the run a signal; another, if it goes on for long.

        Raises:
            EngineError: the machine's lock cannot be looked at.
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
        """Return the key where the run of this name holds the machine.

        Raises:
            EngineError: the machine's lock cannot be looked at.
        """
        holder = self._holder()
        return self.expected_key(name) if holder is not None and holder.run_id == name else None

    def _pid(self, key: str) -> int | None:
        process = self._processes.get(key)
        if process is not None and process.poll() is None:
            return process.pid
        holder = self._holder()
        # As long as it holds the lock, no other process has its number.
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
