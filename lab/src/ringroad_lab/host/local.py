"""This machine, as a host of a test bed."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from ringroad_lab.errors import HostError
from ringroad_lab.host.interface import Completed, Host, Process

# What is kept in memory of what a process said; its log file has all.
OUTPUT_KEPT_BYTES = 64 * 1024
# Where Debian keeps programs that are not in everybody's PATH.
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin")


class LocalProcess(Process):
    """A process on this machine, in a session of its own. The kernel kills it when the thread that started it ends."""

    def __init__(self, name: str, argv: Sequence[str], log_file: Path, env: Mapping[str, str] | None, cpus: frozenset[int] | None) -> None:
        """Start it, its standard output and error into `log_file`."""
        self.name = name
        # Both replace themselves by what they start, so that the process keeps its number.
        wrapped = ["setpriv", "--pdeathsig", "KILL", "--"]
        if cpus:
            wrapped += ["taskset", "--cpu-list", ",".join(str(cpu) for cpu in sorted(cpus))]
        self._popen = subprocess.Popen(
            [*wrapped, *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(env),
            start_new_session=True,
        )
        self.pid = self._popen.pid
        self._kept = bytearray()
        self._changed = threading.Condition()
        self._has_ended = False
        self._reader = threading.Thread(target=self._read, args=(log_file, os.pidfd_open(self.pid)), name=f"output of {name}", daemon=True)
        self._reader.start()

    def _read(self, log_file: Path, pidfd: int) -> None:
        pipe = self._popen.stdout
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
        with pipe, log_file.open("ab", buffering=0) as log, selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            selector.register(pidfd, selectors.EVENT_READ)
            ended = False
            while not ended:
                # A child of the process may hold the pipe open longer: the end is that of the process itself.
                ended = any(key.fd == pidfd for key, _ in selector.select())
                while said := _read_available(pipe.fileno()):
                    log.write(said)
                    with self._changed:
                        self._kept = (self._kept + said)[-OUTPUT_KEPT_BYTES:]
                        self._changed.notify_all()
                if said is not None and not ended:
                    selector.unregister(pipe)
                    ended = bool(selector.select())
        os.close(pidfd)
        self._popen.wait()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def is_running(self) -> bool:
        """Whether it lives."""
        return self._popen.poll() is None

    def output(self) -> str:
        """Return what it said so far; the last 64 KiB of it."""
        with self._changed:
            return self._kept.decode(errors="replace")

    def wait_output(self, text: str, timeout_s: float) -> bool:
        """Wait until it said `text`; False where it ended or the time ran out before."""
        wanted = text.encode()
        with self._changed:
            self._changed.wait_for(lambda: wanted in self._kept or self._has_ended, timeout_s)
            return wanted in self._kept

    def stop(self, timeout_s: float = 5.0) -> int:
        """End it by SIGTERM, then all of its session by SIGKILL; return its status."""
        if self._popen.poll() is None:
            self._popen.terminate()
            try:
                self._popen.wait(timeout_s)
            except subprocess.TimeoutExpired:
                _kill_group(self.pid)
                self._popen.wait()
        # What it left behind in its session.
        _kill_group(self.pid)
        self._reader.join()
        return self._popen.returncode


class LocalHost(Host):
    """This machine. Processes end with the thread that started them: start them from one that lasts."""

    def __init__(self, parent: Path | None = None) -> None:
        """Make the private folder, below `parent` or the system's folder for temporary files."""
        self.name = "this machine"
        self._folder = Path(tempfile.mkdtemp(prefix="ringroad-lab-", dir=parent))
        self.folder = PurePosixPath(self._folder)
        self._processes: list[LocalProcess] = []

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 30.0,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        check: bool = True,
    ) -> Completed:
        """Run a command to its end.

        Raises:
            HostError: it could not start, took too long, or, with `check`, ended with another status than 0.
        """
        command = " ".join(argv)
        try:
            popen = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(env),
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise HostError(f"cannot run {command}: {error.strerror}") from error
        try:
            stdout, stderr = popen.communicate(stdin, timeout_s)
        except subprocess.TimeoutExpired:
            raise HostError(f"{command} did not end within {timeout_s:g} s") from None
        finally:
            if popen.poll() is None:
                _kill_group(popen.pid)
                popen.communicate()
        completed = Completed(tuple(argv), popen.returncode, stdout, stderr)
        if check and completed.status:
            said = (stderr.strip() or stdout.strip() or "it said nothing")[-2000:]
            raise HostError(f"{command} ended with status {completed.status}: {said}")
        return completed

    def start(
        self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cpus: frozenset[int] | None = None
    ) -> LocalProcess:
        """Start a process, bound to some processors where they are named; its log lies in `folder`.

        Raises:
            HostError: there is no such program, or no such processor.
        """
        program = self.find_program(argv[0])
        if program is None:
            raise HostError(f"cannot start {name}: there is no program {argv[0]}")
        missing = (cpus or frozenset()) - os.sched_getaffinity(0)
        if missing:
            raise HostError(f"cannot start {name} on processors {sorted(missing)}: usable are {sorted(os.sched_getaffinity(0))}")
        log_file = self._folder / f"{name.replace('/', '-')}.log"
        process = LocalProcess(name, [program, *argv[1:]], log_file, env, cpus)
        self._processes.append(process)
        return process

    def write_text(self, path: PurePosixPath, text: str) -> None:
        """Write a file, with its folders.

        Raises:
            HostError: it cannot be written.
        """
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise HostError(f"cannot write {path}: {error.strerror}") from error

    def read_text(self, path: PurePosixPath) -> str:
        """Read a file.

        Raises:
            HostError: it cannot be read.
        """
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise HostError(f"cannot read {path}: {error.strerror}") from error

    def find_program(self, program: str) -> str | None:
        """Path of a program: of a name in PATH or the system folders, or of an absolute path that exists."""
        folders = [*os.environ.get("PATH", "").split(os.pathsep), *SYSTEM_FOLDERS]
        return shutil.which(program, path=os.pathsep.join(filter(None, folders)))

    def close(self) -> None:
        """End what still runs, the latest first, and remove the folder."""
        while self._processes:
            self._processes.pop().stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def _environment(added: Mapping[str, str] | None) -> dict[str, str]:
    # What programs say is read: it has to be in the language of the code.
    return {**os.environ, "LC_ALL": "C.UTF-8", **(added or {})}


def _read_available(descriptor: int) -> bytes | None:
    """Read what is there: nothing at the end of the pipe, None where there is nothing yet."""
    try:
        return os.read(descriptor, OUTPUT_KEPT_BYTES)
    except BlockingIOError:
        return None


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
