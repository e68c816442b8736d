"""QEMU's machine protocol (QMP): one command at a time over a UNIX socket. Events are ignored."""

from __future__ import annotations

import json
import socket
from pathlib import PurePosixPath
from typing import Any

from ringroad_lab.errors import GuestError

TIMEOUT_S = 30.0
_MAX_LINE_BYTES = 1 << 20


class Monitor:
    """The lab's end of a monitor of QEMU."""

    def __init__(self, path: PurePosixPath) -> None:
        """Connect, and leave the negotiation of capabilities behind.

        Raises:
            GuestError: nothing listens at the socket, or it is no monitor.
        """
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(TIMEOUT_S)
        try:
            self._socket.connect(str(path))
            self._lines = self._socket.makefile("rb")
            self._read()
            self.execute("qmp_capabilities")
        except OSError as error:
            self._socket.close()
            raise GuestError(f"{path}: {error.strerror or error}") from error
        except GuestError:
            self.close()
            raise

    def execute(self, command: str, **arguments: Any) -> Any:  # noqa: ANN401 - each command has its own types
        """Execute a command; return its result. An underscore in the name of an argument stands for a hyphen.

        Raises:
            GuestError: QEMU refuses, or does not answer.
        """
        named = {name.replace("_", "-"): value for name, value in arguments.items()}
        request = {"execute": command} | ({"arguments": named} if named else {})
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            while True:
                answer = self._read()
                if "error" in answer:
                    raise GuestError(f"QEMU refuses {command}: {str(answer['error'])[:500]}")
                if "return" in answer:
                    return answer["return"]
        except OSError as error:
            raise GuestError(f"QEMU does not answer {command} at {self._path}: {error.strerror or error}") from error

    def _read(self) -> dict[str, Any]:
        line = self._lines.readline(_MAX_LINE_BYTES)
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise GuestError(f"{self._path}: {line[:200].decode(errors='replace') or 'the end'} is no message of QEMU's monitor")
        return message

    def close(self) -> None:
        """Close the connection; can be called any number of times."""
        self._lines.close()
        self._socket.close()
