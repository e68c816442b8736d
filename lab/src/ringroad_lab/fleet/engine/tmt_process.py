"""The process of one tmt job, which outlives dispatchers: `python -m ringroad_lab.fleet.engine.tmt_process FOLDER`.

It runs tmt, and then ends all processes that tmt left. SIGTERM ends the run after the current trial, so that tmt fetches the results and
cleans up the machines. A second SIGTERM ends tmt.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

import psutil

from ringroad_lab.deadline import wait_until
from ringroad_lab.tied import tied
from ringroad_lab.whole_file import write_whole

GO = "go\n"
SECRETS = ("job.key", "job.environment")
"""Names of the files that are deleted at the end of the job, here and on the machines."""
_AWAITED = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
_POLL_S = 5.0
_STOP_LIMIT_S = 30.0
_FINISH_LIMIT_S = 600.0
_LEFTOVERS_LIMIT_S = 10.0


class JobFiles:
    """Paths of a job's files."""

    def __init__(self, folder: Path) -> None:
        """Take the job's folder."""
        self.folder = folder
        self.tree = folder / "tree"
        """Input of tmt."""
        self.run = folder / "run"
        """The folder of tmt's run, its id."""
        self.orders = folder / "orders.json"
        """The process's `JobInstructions`."""
        self.process = folder / "process.json"
        """Identity of the process."""
        self.output = folder / "tmt.log"
        """Output of tmt."""


@dataclass(frozen=True)
class JobInstructions:
    """Instructions for a job's process."""

    bed: str
    tmt: tuple[str, ...]
    """tmt's command line, without the steps."""
    stop: tuple[str, ...]
    """Command that ends the run on the generator after its trial."""
    environment: dict[str, str]

    def write(self, file: Path) -> None:
        """Write the orders to a file."""
        write_whole(file, json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path) -> JobInstructions:
        """Read the orders from a file.

        Raises:
            OSError: the file cannot be read.
        """
        return cls(**json.loads(file.read_text()))


def keep_process(files: JobFiles, pid: int) -> None:
    """Record the identity of a job's process."""
    write_whole(files.process, json.dumps({"pid": pid, "started": _started(pid)}))


def find_process(files: JobFiles) -> int | None:
    """Return the PID of a job's process; None if it has ended, also if the PID was reused."""
    try:
        recorded = json.loads(files.process.read_text())
        return int(recorded["pid"]) if recorded["started"] == _started(int(recorded["pid"])) else None
    except (OSError, ValueError, KeyError):
        return None


def _started(pid: int) -> str:
    """Return the start time of a process in kernel ticks of this boot, which setting the clock does not change.

    Raises:
        ProcessLookupError: the process has ended.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessLookupError(pid) from error
    if fields[0] == "Z":
        raise ProcessLookupError(pid)
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {fields[19]}"


def end_leftovers(files: JobFiles) -> None:
    """Kill the processes that tmt left: SSH connections, which have the run's folder among their arguments.

    Returns once none is left. A process that starts another one while it is killed is no reason to leave that one.
    """
    wait_until(lambda: not _kill_leftovers(files), _LEFTOVERS_LIMIT_S)


def _kill_leftovers(files: JobFiles) -> bool:
    """Kill the processes that have the run's folder among their arguments; return whether there were any."""
    were_any = False
    for process in psutil.process_iter(["cmdline"]):
        if process.pid != os.getpid() and any(str(files.run) in argument for argument in process.info["cmdline"] or ()):
            were_any = True
            with suppress(psutil.Error):
                process.kill()
    return were_any


class _Supervisor:
    def __init__(self, files: JobFiles) -> None:
        self._files = files
        self._orders = JobInstructions.read(files.orders)
        self._stops = 0

    def run(self) -> None:
        """Run the job."""
        # sigtimedwait takes them one by one.
        signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        with self._files.output.open("ab") as output:
            status = self._call(output, "run", "--id", str(self._files.run), "--all")
            if self._stops > 1 or status < 0:
                # tmt did not end by itself: clean up the machines nevertheless.
                self._call(output, "run", "--id", str(self._files.run), "finish", "cleanup", limit_s=_FINISH_LIMIT_S, obeys=False)
        end_leftovers(self._files)
        for name in SECRETS:
            for secret in self._files.folder.rglob(name):
                secret.unlink(missing_ok=True)

    def _call(self, output: BinaryIO, *arguments: str, limit_s: float = float("inf"), obeys: bool = True) -> int:
        # preexec_fn is safe: this process has no other threads.
        tmt = subprocess.Popen(
            tied([*self._orders.tmt, *arguments]),
            cwd=self._files.tree,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **self._orders.environment},
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED),
        )
        ends = time.monotonic() + limit_s
        while tmt.poll() is None:
            got = signal.sigtimedwait(_AWAITED, _POLL_S)
            is_stop = obeys and got is not None and got.si_signo != signal.SIGCHLD
            self._stops += is_stop
            if time.monotonic() > ends or (is_stop and self._stops > 2):
                tmt.kill()
            elif is_stop and self._stops == 2:
                tmt.terminate()
            elif self._stops == 1 and tmt.poll() is None:
                self._stop_run(output)
        return tmt.returncode

    def _stop_run(self, output: BinaryIO) -> None:
        """Request the end of the run after its trial; repeated until the run has begun and the machine can be reached."""
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                self._orders.stop, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, timeout=_STOP_LIMIT_S, check=False
            )


def main() -> None:
    """Run the job of a folder after the starting process has recorded this process."""
    if sys.stdin.readline() == GO:
        _Supervisor(JobFiles(Path(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
