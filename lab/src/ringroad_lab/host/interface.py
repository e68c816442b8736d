"""The lab's interface to a machine: run commands, start processes, keep files in a private folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from ringroad_lab.errors import MissingProgramError
from ringroad_lab.host.output import Output

LAST_WORDS_CHARACTERS = 2000


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
    """For people: `ovs-vswitchd`."""
    pid: int
    """On its host."""

    def __init__(self, name: str) -> None:
        """Name it."""
        self.name = name
        self._said = Output()

    def is_running(self) -> bool:
        """Whether it lives. Once it does not, all that it said is there."""
        return self._said.status is None

    def output(self) -> str:
        """Return what it said so far, standard output and error together; the last 64 KiB of it."""
        return self._said.text()

    def wait_output(self, text: str, timeout_s: float) -> bool:
        """Wait until it said `text`; False where it ended or the time ran out before."""
        return self._said.wait_text(text, timeout_s)

    def last_words(self) -> str:
        """Return the end of what it said, for an error."""
        return self.output().strip()[-LAST_WORDS_CHARACTERS:] or "it said nothing"

    def death(self) -> str | None:
        """Return how it ended, with its last words; None while it lives."""
        return None if self.is_running() else f"ended with status {self.stop()}: {self.last_words()}"

    def why_silent(self, text: str, timeout_s: float) -> str | None:
        """Wait until it said `text`, and return None; where it did not, why: it ended, or the time ran out, with its last words."""
        if self.wait_output(text, timeout_s):
            return None
        return self.death() or f"is not ready after {timeout_s:g} s: {self.last_words()}"

    @abstractmethod
    def stop(self, timeout_s: float = 5.0) -> int:
        """End it by SIGTERM, then by SIGKILL; return its status. One that ended already is no error."""


class Host(ABC):
    """A machine."""

    name: str
    folder: PurePosixPath
    """Private to this run; removed with the host's `close`."""

    @property
    def cable_prefix(self) -> str:
        """What the names of this run's cables begin with there: of the folder's name, which is unique on its host."""
        return self.folder.name[-4:]

    def undo_script(self, name: str) -> PurePosixPath:
        """Path of a shell script that may be written, and is run when the lab leaves the host, be it killed or the connection lost.

        What the lab started there has ended by then, or is about to.
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
        """Run a command to its end.

        Raises:
            HostError: it could not start, took too long, or, with `check`, ended with another status than 0; what it said comes with it.
        """

    @abstractmethod
    def start(self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cpus: frozenset[int] | None = None) -> Process:
        """Start a process, bound to some processors where they are named."""

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
        path = self.find_program(program)
        if path is None:
            raise MissingProgramError(program, package, self.name)
        return path

    def locate(self, path: str) -> str:
        """Path of a file that comes with a program; where it is a build's program, that build's file if it has one."""
        return path

    @abstractmethod
    def close(self) -> None:
        """End what still runs, and remove the folder."""
