"""The lab's interface to a machine: runs commands, starts processes, keeps files in a private folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field

from ringroad_lab.errors import MissingProgramError
from ringroad_lab.host.output import Output
from ringroad_lab.trial import Frozen

LAST_WORDS_CHARACTERS = 2000


class SshAddress(Frozen):
    """Address and credentials of another machine, for SSH."""

    name: str
    address: str
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    user: str = "root"
    key_file: str | None = None
    known_hosts_file: str | None = None


@dataclass(frozen=True)
class Completed:
    """Result of a command that ended."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str


class Process(ABC):
    """A process that the lab starts and stops."""

    name: str
    """Name for people: `ovs-vswitchd`."""
    pid: int
    """Process ID on its host."""

    def __init__(self, name: str) -> None:
        """Set its name."""
        self.name = name
        self._said = Output()

    def is_running(self) -> bool:
        """Return whether the process is running. Once it is not, its output is complete."""
        return self._said.status is None

    def output(self) -> str:
        """Return the last 64 KiB of its output so far, standard output and error combined."""
        return self._said.text()

    def wait_output(self, text: str, timeout_s: float) -> bool:
        """Wait until the output contains `text`; return False if the process ended or the wait timed out first."""
        return self._said.wait_text(text, timeout_s)

    def last_words(self) -> str:
        """Return the end of its output, for an error message."""
        return self.output().strip()[-LAST_WORDS_CHARACTERS:] or "no output"

    def death(self) -> str | None:
        """Return how the process ended, with the end of its output; None while it is running."""
        return None if self.is_running() else f"ended with status {self.stop()}: {self.last_words()}"

    def why_silent(self, text: str, timeout_s: float) -> str | None:
        """Wait until the output contains `text`; return None, or why it does not (ended, timed out), with the end of the output."""
        if self.wait_output(text, timeout_s):
            return None
        return self.death() or f"is not ready after {timeout_s:g} s: {self.last_words()}"

    @abstractmethod
    def stop(self, timeout_s: float = 5.0) -> int:
        """Stop the process by SIGTERM, then by SIGKILL; return its status. Stopping an ended process is not an error."""


class Host(ABC):
    """A machine."""

    name: str
    folder: PurePosixPath
    """Private to this run; `close` removes it."""

    @property
    def cable_prefix(self) -> str:
        """Prefix of the names of this run's cables: part of the folder's name, which is unique on the host."""
        return self.folder.name[-4:]

    def undo_script(self, name: str) -> PurePosixPath:
        """Path for a shell script that runs when the lab leaves the host, also if the lab is killed or the connection is lost.

        By then the lab's processes there have ended or are about to end.
        """
        return self.folder / "undo" / name

    @abstractmethod
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
            HostError: it could not start, timed out, or, with `check`, ended with a status other than 0; the message has its output.
        """

    @abstractmethod
    def start(self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cpus: frozenset[int] | None = None) -> Process:
        """Start a process, bound to `cpus` if given."""

    @abstractmethod
    def write_text(self, path: PurePosixPath, text: str) -> None:
        """Write a file, and create its folders."""

    @abstractmethod
    def read_text(self, path: PurePosixPath) -> str:
        """Read a file, also of /proc and /sys.

        Raises:
            HostError: it cannot be read.
        """

    @abstractmethod
    def find_program(self, program: str) -> str | None:
        """Return the path of a program, searched in PATH and the system folders, or given as an absolute path; None if not found."""

    def require(self, program: str, package: str) -> str:
        """Return the path of a required program.

        Raises:
            MissingProgramError: it does not exist; names the Debian package that provides it.
        """
        path = self.find_program(program)
        if path is None:
            raise MissingProgramError(program, package, self.name)
        return path

    def locate(self, path: str) -> str:
        """Return the path of a file that belongs to a program: the file of the build, if a build replaces the program and has the file."""
        return path

    @abstractmethod
    def close(self) -> None:
        """Stop all remaining processes, and remove the folder."""
