"""Another machine, as a host of a test setup, reached by SSH.

All processes started there end with the connection: a killed run leaves nothing behind on the other machine.
"""

from __future__ import annotations

import asyncio
import shlex
import socket
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import PurePosixPath
from typing import Any

import asyncssh

from ringroad_lab.errors import HostError
from ringroad_lab.host.interface import Completed, Host, Process, SshAddress

READ_BYTES = 64 * 1024
CONNECT_LIMIT_S = 15.0
# Time that an answer can take beyond the command itself.
ANSWER_LIMIT_S = 10.0
KEEPALIVE_S = 10.0
# Users other than root have no system folders in their PATH. The lab parses the output of programs, which must be in English.
_ENVIRONMENT = 'PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" LC_ALL=C.UTF-8'
_TIMED_OUT = 124
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127

# Runs a program in its own session. When the connection ends, standard input ends: then stops the program.
_SUPERVISE = """\
exec 3<&0
setsid "$@" </dev/null 3<&- &
child=$!
echo "$child"
{ read -r _; kill -s TERM "$child"
  for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$child" || break; sleep 0.2; done
  kill -s KILL -- "-$child"; } <&3 >/dev/null 2>&1 &
watch=$!
exec 3<&-
wait "$child"
status=$?
kill "$watch"
kill -s KILL -- "-$child" 2>/dev/null
exit "$status"
"""
# Creates the folder. When standard input ends, undoes changes and removes the folder.
_KEEP_FOLDER = """\
trap '' HUP INT TERM PIPE
folder=$(mktemp -d /tmp/ringroad-lab-XXXXXXXX) || exit 1
echo "$folder" 2>/dev/null && read -r _
for each in "$folder"/undo/*; do [ ! -e "$each" ] || sh "$each"; done >/dev/null 2>&1
rm -rf "$folder"
"""


class SshProcess(Process):
    """A process on another machine. The connection carries its output."""

    def __init__(self, host: SshHost, name: str, command: str) -> None:
        """Start the process."""
        super().__init__(name)
        self._host = host
        self._remote: Any = None
        self.pid = host.wait(self._start(command), CONNECT_LIMIT_S)

    async def _start(self, command: str) -> int:
        self._remote = await self._host.connection.create_process(command, stderr=asyncssh.STDOUT, encoding=None)
        line = await self._remote.stdout.readline()
        if not line.strip().isdigit():
            rest = await self._remote.stdout.read()
            raise HostError(f"cannot start {self.name} on {self._host.name}: {(line + rest).decode(errors='replace').strip()}")
        # Keep a reference: otherwise the task could be garbage-collected.
        self._reader = asyncio.ensure_future(self._read())
        return int(line)

    async def _read(self) -> None:
        try:
            while output := await self._remote.stdout.read(READ_BYTES):
                self._said.add(output)
            await self._remote.wait_closed()
            status = self._remote.returncode
        except (asyncssh.Error, OSError) as error:
            status = None
            self._said.add(f"\nthe connection to {self._host.name} was lost: {error}\n".encode())
        # The shell reports a signal as 128 + its number; Python, and so the lab, as a negative number.
        self._said.end(-1 if status is None else 128 - status if status > 128 else status)

    def stop(self, timeout_s: float = 5.0) -> int:
        """Stop the process by SIGTERM, then its whole session by SIGKILL; return its status."""
        if self.is_running():
            self._host.signal(self.pid, "TERM")
        status = self._said.wait_end(timeout_s)
        if status is None:
            self._host.signal(-self.pid, "KILL")
            status = self._said.wait_end(ANSWER_LIMIT_S)
        return -1 if status is None else status


class SshHost(Host):
    """Another machine. It needs a POSIX shell and coreutils, but no part of the lab."""

    def __init__(self, place: SshAddress) -> None:
        """Connect, and create the private folder.

        Without a `key_file`, the user's default keys and agent are tried. The default of `known_hosts_file` is `~/.ssh/known_hosts`. A
        machine whose host key is not in that file is rejected.

        Raises:
            HostError: the machine cannot be reached, has an unknown or wrong host key, or refuses the user.
        """
        self.name = place.name
        self._processes: list[SshProcess] = []
        self._programs: dict[str, str] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"SSH to {place.name}", daemon=True)
        self._thread.start()
        self.connection: Any = None
        where = f"{place.name} ({place.user}@{place.address}, port {place.port})"
        options: dict[str, Any] = {
            "port": place.port,
            "username": place.user,
            "connect_timeout": CONNECT_LIMIT_S,
            "login_timeout": CONNECT_LIMIT_S,
        }
        if place.key_file is not None:
            options["client_keys"] = [place.key_file]
        if place.known_hosts_file is not None:
            options["known_hosts"] = place.known_hosts_file
        try:
            self.connection = self.wait(self._connect(place.address, options), 2 * CONNECT_LIMIT_S)
            self._keeper = self.wait(self._keep_folder(), CONNECT_LIMIT_S)
        except asyncssh.HostKeyNotVerifiable as error:
            self._end_loop()
            known = place.known_hosts_file or "~/.ssh/known_hosts"
            add = f"ssh-keyscan -p {place.port} {place.address} >>{known}"
            raise HostError(f"{where} has a key that is not in {known}: check it, then add it: {add} ({error})") from error
        except asyncssh.PermissionDenied as error:
            self._end_loop()
            raise HostError(
                f"{where} refuses the user: put the public key into {place.user}'s authorized_keys there ({error.reason})"
            ) from error
        except (asyncssh.Error, OSError, ValueError) as error:
            self._end_loop()
            raise HostError(f"cannot reach {where}: {_why(error)}") from error
        except HostError:
            self._end_loop()
            raise

    async def _connect(self, address: str, options: dict[str, Any]) -> Any:  # noqa: ANN401 (asyncssh has no types)
        return await asyncssh.connect(address, keepalive_interval=KEEPALIVE_S, **options)

    async def _keep_folder(self) -> Any:  # noqa: ANN401
        keeper = await self.connection.create_process(f"sh -c {shlex.quote(_KEEP_FOLDER)}", stderr=asyncssh.STDOUT)
        line = (await keeper.stdout.readline()).strip()
        if not line.startswith("/tmp/ringroad-lab-"):
            raise HostError(f"{self.name}: cannot create a folder for the run: {line or 'no answer'}")
        self.folder = PurePosixPath(line)
        return keeper

    def wait(self, work: Coroutine[Any, Any, Any], timeout_s: float) -> Any:  # noqa: ANN401
        """Run a coroutine in the connection's thread, and wait for its result.

        Raises:
            HostError: it timed out.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except FutureTimeoutError as error:
            if future.done():
                raise
            future.cancel()
            raise HostError(f"{self.name} does not answer within {timeout_s:g} s") from error

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 30.0,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        check: bool = True,
    ) -> Completed:
        """Run a command and wait for its end."""
        # `timeout` ends the command on the other machine: closing the connection's channel would not.
        command = self._shell_command(["timeout", "--kill-after=2", f"{timeout_s:.3f}", *argv], env)
        shown = " ".join(argv)
        try:
            done = self.wait(self.connection.run(command, input=stdin, errors="replace"), timeout_s + ANSWER_LIMIT_S)
        except (asyncssh.Error, OSError) as error:
            raise HostError(f"cannot run {shown} on {self.name}: {_why(error)}") from error
        # None: the machine did not report a status, for example when a signal ended the shell.
        status = -1 if done.exit_status is None else int(done.exit_status)
        completed = Completed(tuple(argv), status, str(done.stdout), str(done.stderr))
        output = (completed.stderr.strip() or completed.stdout.strip() or "no output")[-2000:]
        if status == _TIMED_OUT:
            raise HostError(f"{shown} did not end within {timeout_s:g} s on {self.name}")
        # A shell that runs as the command may end with these statuses, too.
        if status in (_NOT_FOUND, _NOT_EXECUTABLE) and completed.stderr.startswith("timeout:"):
            raise HostError(f"cannot run {shown} on {self.name}: {output}")
        if check and status:
            raise HostError(f"{shown} ended with status {status} on {self.name}: {output}")
        return completed

    def start(
        self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cpus: frozenset[int] | None = None
    ) -> SshProcess:
        """Start a process, bound to `cpus` if given."""
        program = self.find_program(argv[0])
        if program is None:
            raise HostError(f"cannot start {name}: there is no program {argv[0]} on {self.name}")
        bound = ["taskset", "--cpu-list", ",".join(str(cpu) for cpu in sorted(cpus))] if cpus else []
        try:
            process = SshProcess(self, name, self._shell_command(["sh", "-c", _SUPERVISE, "sh", *bound, program, *argv[1:]], env))
        except (asyncssh.Error, OSError) as error:
            raise HostError(f"cannot start {name} on {self.name}: {_why(error)}") from error
        self._processes.append(process)
        return process

    def signal(self, pid: int, name: str) -> None:
        """Send a signal to a process, or to a process group (negative number); an ended process is not an error."""
        # The shell's built-in: the `kill` of procps takes a process group with a small number for a signal.
        self.run(["sh", "-c", 'kill -s "$1" -- "$2"', "sh", name, str(pid)], check=False)

    def write_text(self, path: PurePosixPath, text: str) -> None:
        """Write a file, and create its folders."""
        self.run(["sh", "-c", 'mkdir -p "$(dirname "$1")" && cat >"$1"', "sh", str(path)], stdin=text)

    def read_text(self, path: PurePosixPath) -> str:
        """Read a file, also of /proc and /sys."""
        return self.run(["cat", str(path)]).stdout

    def find_program(self, program: str) -> str | None:
        """Return the path of a program, searched in PATH and the system folders, or given as an absolute path; None if not found."""
        if program not in self._programs:
            found = self.run(["sh", "-c", 'command -v "$1"', "sh", program], check=False).stdout.strip()
            if not found:
                return None
            self._programs[program] = found
        return self._programs[program]

    def close(self) -> None:
        """Stop all remaining processes, the latest first, remove the folder, and disconnect."""
        if self._loop.is_closed():
            return
        try:
            while self._processes:
                self._processes.pop().stop()
            self.wait(self._drop_folder(), ANSWER_LIMIT_S)
        except (HostError, asyncssh.Error, OSError):
            # The connection is lost: the other machine cleans up by itself.
            pass
        finally:
            self._end_loop()

    async def _drop_folder(self) -> None:
        self._keeper.stdin.write_eof()
        await self._keeper.wait_closed()

    def _end_loop(self) -> None:
        async def disconnect() -> None:
            if self.connection is not None:
                self.connection.close()
                await self.connection.wait_closed()
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

        try:
            self.wait(disconnect(), ANSWER_LIMIT_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    @staticmethod
    def _shell_command(argv: Sequence[str], env: Mapping[str, str] | None) -> str:
        added = [f"{name}={shlex.quote(value)}" for name, value in (env or {}).items()]
        return " ".join([_ENVIRONMENT, *added, shlex.join(argv)])


def _why(error: Exception) -> str:
    match error:
        case ConnectionRefusedError():
            return "the connection is refused: no SSH server listens there"
        case socket.gaierror():
            return "there is no machine with that name"
        case TimeoutError():
            return f"no answer within {CONNECT_LIMIT_S:g} s"
        case asyncssh.KeyImportError():
            return f"the private key cannot be read: {error}"
        case OSError(strerror=str(text), filename=str(file)):
            return f"{file}: {text}"
        case OSError(strerror=str(text)):
            return text
        case _:
            return str(error) or type(error).__name__
