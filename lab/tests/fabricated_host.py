"""A fabricated host, for tests that read a machine which is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from ringroad_lab.errors import HostError
from ringroad_lab.host.interface import Completed, Host, Process


class FabricatedHost(Host):
    """A fabricated host: its files and commands have the contents that a test sets; all other commands fail."""

    name = "fabricated"
    folder = PurePosixPath("/nonexistent")

    def __init__(self, files: Mapping[str, str], commands: Mapping[str, str]) -> None:
        """Set the contents of files and the output of commands."""
        self._files = files
        self._commands = commands

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 30.0,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        check: bool = True,
    ) -> Completed:
        """Return the output of a command; a shell command reads the files."""
        if argv[0] == "sh":
            lines = [f"{path}:{line}" for path, text in self._files.items() for line in text.split("\n")]
            return Completed(tuple(argv), 2, "\n".join(lines), "")
        output = self._commands.get(" ".join(argv))
        return Completed(tuple(argv), 127 if output is None else 0, output or "", "")

    def start(self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cpus: frozenset[int] | None = None) -> Process:
        """Refuse."""
        raise HostError("it starts nothing")

    def write_text(self, path: PurePosixPath, text: str) -> None:
        """Refuse."""
        raise HostError("it writes nothing")

    def read_text(self, path: PurePosixPath) -> str:
        """Refuse."""
        raise HostError("it reads nothing")

    def find_program(self, program: str) -> str | None:
        """Find programs that have a command."""
        return f"/usr/bin/{program}" if any(command.split()[0] == program for command in self._commands) else None

    def close(self) -> None:
        """Do nothing."""
