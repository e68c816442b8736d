"""The lab's machine as a host of a test setup."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from ringroad_lab.errors import HostError
from ringroad_lab.host.interface import Completed, Host, Process
from ringroad_lab.tied import tied

# Folders of Debian with programs that are not in the PATH of every user.
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin")


# Creates the folder. When the lab ends, standard input ends: then undoes changes and removes the folder. Processes that are ending at
# the same time may still write to it.
_KEEP_FOLDER = """\
trap '' HUP INT TERM PIPE
folder=$(mktemp -d "$0/ringroad-lab-XXXXXXXX") || exit 1
echo "$folder" 2>/dev/null && read -r _
for each in "$folder"/undo/*; do [ ! -e "$each" ] || sh "$each"; done
for _ in 1 2 3 4 5; do rm -rf "$folder" && break; sleep 0.1; done
"""
_READ_BYTES = 64 * 1024


class LocalProcess(Process):
    """A process on this machine, in its own session. The kernel kills it when the thread that started it ends."""

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None, cpus: frozenset[int] | None) -> None:
        """Start the process."""
        super().__init__(name)
        bound = ["taskset", "--cpu-list", ",".join(str(cpu) for cpu in sorted(cpus))] if cpus else []
        self._popen = subprocess.Popen(
            tied([*bound, *argv]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(env),
            start_new_session=True,
        )
        self.pid = self._popen.pid
        self._reader = threading.Thread(target=self._read, args=(os.pidfd_open(self.pid),), name=f"output of {name}", daemon=True)
        self._reader.start()

    def _read(self, pidfd: int) -> None:
        """Read the output to the end, and reap the process. Nothing else reaps it, so its PID stays valid until then."""
        pipe = self._popen.stdout
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
        with pipe, selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            selector.register(pidfd, selectors.EVENT_READ)
            # A child of the process may hold the pipe open longer: stop reading when the process itself ends.
            while not any(key.fd == pidfd for key, _ in selector.select()):
                if not self._keep_available(pipe.fileno()):
                    selector.unregister(pipe)
            # Kill the processes that it left in its session.
            _kill_group(self.pid)
            if pipe.fileno() in selector.get_map():
                self._keep_available(pipe.fileno())
        os.close(pidfd)
        self._said.end(self._popen.wait())

    def _keep_available(self, descriptor: int) -> bool:
        """Read the output available now; return whether more may follow."""
        try:
            # Read no more than a pipe holds: a process that left the session and keeps writing must not block the reader.
            for _ in range(16):
                output = os.read(descriptor, _READ_BYTES)
                if not output:
                    return False
                self._said.add(output)
        except BlockingIOError:
            pass
        return True

    def is_running(self) -> bool:
        """Return whether the process is running. Once it is not, its output is complete."""
        if not super().is_running():
            return False
        try:
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return True
        except ChildProcessError:
            pass
        self._reader.join()
        return False

    def stop(self, timeout_s: float = 5.0) -> int:
        """Stop the process by SIGTERM, then its whole session by SIGKILL; return its status."""
        if self.is_running():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
            if self._said.wait_end(timeout_s) is None:
                _kill_group(self.pid)
        self._reader.join()
        return self._popen.returncode


class LocalHost(Host):
    """The machine of the lab. Processes end with the thread that started them, so use a long-lived one."""

    def __init__(self, parent: Path | None = None) -> None:
        """Create the private folder, below `parent` or the system's folder for temporary files.

        Raises:
            HostError: the folder cannot be created.
        """
        self.name = "this machine"
        self._processes: list[LocalProcess] = []
        place = parent or tempfile.gettempdir()
        self._keeper = subprocess.Popen(
            ["sh", "-c", _KEEP_FOLDER, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        with self._keeper.stdout as output:
            folder = output.readline().strip()
        if not folder:
            self._keeper.stdin.close()
            self._keeper.wait()
            raise HostError(f"cannot create a folder for the run below {place}")
        self.folder = PurePosixPath(folder)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 30.0,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        check: bool = True,
    ) -> Completed:
        """Run a command and wait for its end.

        Raises:
            HostError: it could not start, timed out, or, with `check`, ended with a status other than 0.
        """
        command = " ".join(argv)
        program = self.find_program(argv[0])
        if program is None:
            raise HostError(f"cannot run {command}: there is no program {argv[0]}")
        try:
            popen = subprocess.Popen(
                tied([program, *argv[1:]]),
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
        # Closes the pipes, even if another process still holds their other ends.
        with popen:
            try:
                stdout, stderr = popen.communicate(stdin, timeout_s)
            except BaseException as error:
                # The command may have ended while a child of it holds its output open.
                _kill_group(popen.pid)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise HostError(f"{command} did not end within {timeout_s:g} s") from None
                raise
        completed = Completed(tuple(argv), popen.returncode, stdout, stderr)
        if check and completed.status:
            output = (stderr.strip() or stdout.strip() or "no output")[-2000:]
            raise HostError(f"{command} ended with status {completed.status}: {output}")
        return completed

    def start(
        self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cpus: frozenset[int] | None = None
    ) -> LocalProcess:
        """Start a process, bound to `cpus` if given.

        Raises:
            HostError: the program or a processor does not exist, or the process cannot be started.
        """
        program = self.find_program(argv[0])
        if program is None:
            raise HostError(f"cannot start {name}: there is no program {argv[0]}")
        missing = (cpus or frozenset()) - os.sched_getaffinity(0)
        if missing:
            raise HostError(f"cannot start {name} on processors {sorted(missing)}: usable are {sorted(os.sched_getaffinity(0))}")
        try:
            process = LocalProcess(name, [program, *argv[1:]], env, cpus)
        except OSError as error:
            raise HostError(f"cannot start {name}: {error.strerror}") from error
        self._processes.append(process)
        return process

    def write_text(self, path: PurePosixPath, text: str) -> None:
        """Write a file, and create its folders.

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
        """Return the path of a program, searched in PATH and the system folders, or given as an absolute path; None if not found."""
        return shutil.which(program, path=_path())

    def close(self) -> None:
        """Stop all remaining processes, the latest first, and remove the folder."""
        while self._processes:
            self._processes.pop().stop()
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        self._keeper.wait()


def _environment(added: Mapping[str, str] | None) -> dict[str, str]:
    # The lab parses the output of programs, which must be in English.
    return {**os.environ, "PATH": _path(), "LC_ALL": "C.UTF-8", **(added or {})}


def _path() -> str:
    return os.pathsep.join(filter(None, (*os.environ.get("PATH", "").split(os.pathsep), *SYSTEM_FOLDERS)))


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
