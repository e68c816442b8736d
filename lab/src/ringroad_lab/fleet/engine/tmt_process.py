"""One job of tmt as a process of its own, which outlives dispatchers: `python -m ringroad_lab.fleet.engine.tmt_process FOLDER`.

It runs tmt, and sees to it that nothing of tmt is left. SIGTERM has the run end after the trial under way, so that
results are fetched and the machines left in order; a second one ends tmt.
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

from ringroad_lab.tied import tied

GO = "go\n"
SECRETS = ("job.key", "job.environment")
"""Names of the files that are gone when the job has ended, here as on the machines."""
_AWAITED = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
_LOOKS_S = 5.0
_STOP_LIMIT_S = 30.0
_FINISH_LIMIT_S = 600.0


@dataclass(frozen=True)
class JobFiles:
    """Where a job is on disk."""

    folder: Path

    @property
    def tree(self) -> Path:
        """What tmt reads."""
        return self.folder / "tree"

    @property
    def run(self) -> Path:
        """The folder of tmt's run, its id."""
        return self.folder / "run"

    @property
    def orders(self) -> Path:
        """What the process is to do."""
        return self.folder / "orders.json"

    @property
    def process(self) -> Path:
        """Which process it is."""
        return self.folder / "process.json"

    @property
    def output(self) -> Path:
        """What tmt says."""
        return self.folder / "tmt.log"


@dataclass(frozen=True)
class Orders:
    """What a job's process is to do."""

    bed: str
    tmt: tuple[str, ...]
    """tmt's command, up to the steps."""
    stop: tuple[str, ...]
    """What has the run end after its trial, on the generator."""
    environment: dict[str, str]

    def write(self, file: Path) -> None:
        """Keep them."""
        write_whole(file, json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Orders:
        """Read them.

        Raises:
            OSError: they are not there.
        """
        return cls(**json.loads(file.read_text()))


def write_whole(file: Path, text: str) -> None:
    """Write a file, whole or not at all, and so that it is there after a loss of power."""
    unfinished = file.with_name(f".{file.name}.unfinished")
    with unfinished.open("w") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    unfinished.replace(file)


def keep_process(files: JobFiles, pid: int) -> None:
    """Write down which process a job's is."""
    write_whole(files.process, json.dumps({"pid": pid, "started": _started(pid)}))


def find_process(files: JobFiles) -> int | None:
    """Return the number of a job's process; None where it has ended: a number that another process has by now is not it."""
    try:
        told = json.loads(files.process.read_text())
        return int(told["pid"]) if told["started"] == _started(int(told["pid"])) else None
    except (OSError, ValueError, KeyError):
        return None


def _started(pid: int) -> str:
    """Return when a process was started: in the kernel's ticks of this boot, which no setting of the clock changes.

    Raises:
        ProcessLookupError: it has ended.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessLookupError(pid) from error
    if fields[0] == "Z":
        raise ProcessLookupError(pid)
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {fields[19]}"


def end_leftovers(files: JobFiles) -> None:
    """Kill what tmt left: connections by SSH, which have the folder of the run among their arguments."""
    for process in psutil.process_iter(["cmdline"]):
        if process.pid != os.getpid() and any(str(files.run) in argument for argument in process.info["cmdline"] or ()):
            with suppress(psutil.Error):
                process.kill()


class _Supervisor:
    def __init__(self, files: JobFiles) -> None:
        self._files = files
        self._orders = Orders.read(files.orders)
        self._stops = 0

    def run(self) -> None:
        """Carry the job out."""
        # Taken by sigtimedwait, one after the other.
        signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        with self._files.output.open("ab") as output:
            status = self._call(output, "run", "--id", str(self._files.run), "--all")
            if self._stops > 1 or status < 0:
                # It came to no end by itself: the machines are left in order all the same.
                self._call(output, "run", "--id", str(self._files.run), "finish", "cleanup", limit_s=_FINISH_LIMIT_S, obeys=False)
        end_leftovers(self._files)
        for name in SECRETS:
            for secret in self._files.folder.rglob(name):
                secret.unlink(missing_ok=True)

    def _call(self, output: BinaryIO, *arguments: str, limit_s: float = float("inf"), obeys: bool = True) -> int:
        # The thread that starts it has no other to disturb.
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
            got = signal.sigtimedwait(_AWAITED, _LOOKS_S)
            is_asked = obeys and got is not None and got.si_signo != signal.SIGCHLD
            self._stops += is_asked
            if time.monotonic() > ends or (is_asked and self._stops > 2):
                tmt.kill()
            elif is_asked and self._stops == 2:
                tmt.terminate()
            elif self._stops == 1 and tmt.poll() is None:
                self._stop_run(output)
        return tmt.returncode

    def _stop_run(self, output: BinaryIO) -> None:
        """Have the run end after its trial, once it has begun; the machine may not be reached now, and is asked again."""
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                self._orders.stop, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, timeout=_STOP_LIMIT_S, check=False
            )


def main() -> None:
    """Carry out the job of a folder, once whoever starts it has written down which process this is."""
    if sys.stdin.readline() == GO:
        _Supervisor(JobFiles(Path(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
