"""What the lab does on a machine: run commands, start processes, keep files in a private folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True)
class Completed:
    """A command that ended."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str


class Process(ABC):
    """A process that the lab started, and ends."""

    name: str
    """For people, and for its log: `ovs-vswitchd`."""
    pid: int
    """On its host."""

    @abstractmethod
    def is_running(self) -> bool:
        """Whether it lives."""

    @abstractmethod
    def output(self) -> str:
        """Return what it said so far, standard output and error together; the last 64 KiB of it."""

    @abstractmethod
    def wait_output(self, text: str, timeout_s: float) -> bool:
        """Wait until it said `text`; False where it ended or the time ran out before."""

    @abstractmethod
    def stop(self, timeout_s: float = 5.0) -> int:
        """End it by SIGTERM, then by SIGKILL; return its status. One that ended already is no error."""


class Host(ABC):
    """A machine."""

    name: str
    folder: PurePosixPath
    """Private to this run; removed with the host's `close`."""

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
        """Run a command to its end.

        Raises:
            HostError: it could not start, took too long, or, with `check`, ended with another status than 0; what it said comes with it.
        """

    @abstractmethod
    def start(self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cpus: frozenset[int] | None = None) -> Process:
        """Start a process, bound to some processors where they are named; its log lies in `folder`."""

    @abstractmethod
    def write_text(self, path: PurePosixPath, text: str) -> None:
        """Write a file, with its folders."""

    @abstractmethod
    def read_text(self, path: PurePosixPath) -> str:
        """Read a file; of devices in /proc and /sys too.

        Raises:
            HostError: it cannot be read.
        """

    @abstractmethod
    def find_program(self, program: str) -> str | None:
        """Path of a program: of a name in PATH or the system folders, or of an absolute path that exists."""

    def require(self, program: str, package: str) -> str:
        """Path of a program that has to be there.

        Raises:
            MissingProgramError: it is not; the Debian package that has it is named.
        """
        from ringroad_lab.errors import MissingProgramError

        path = self.find_program(program)
        if path is None:
            raise MissingProgramError(program, package, self.name)
        return path

    @abstractmethod
    def close(self) -> None:
        """End what still runs, and remove the folder."""
