"""Runs commands in a virtual machine over its second serial port, one at a time.

A request is one line: a mark that occurs in no output, a script in base64, and a dot. The response is the output of the
script, and a line with the mark and the exit status.
"""

from __future__ import annotations

import base64
import re
import secrets
import socket
import time
from pathlib import PurePosixPath

from ringroad_lab.errors import HostError
from ringroad_lab.guest.initramfs import READY

# The guest's end of the channel: the end of the guest's script. A subshell writes to the port: the shell itself adopts
# what commands leave running, and the end of such a process would interrupt its write.
SERVE_COMMANDS = f"""\
stty -F /dev/ttyS1 raw -echo
exec 3<>/dev/ttyS1
echo "{READY}"
while read -r mark script dot <&3; do
    [ "$dot" = . ] || continue
    echo "$script" | base64 -d >/run/command
    (
        status=0
        sh /run/command </dev/null 2>&1 || status=$?
        printf '\\n%s end %d\\n' "$mark" "$status"
    ) >&3
done
"""
_READ_BYTES = 16 * 1024


class CommandChannel:
    """The lab's end of the serial port of a guest on this machine."""

    def __init__(self, path: PurePosixPath) -> None:
        """Connect to QEMU's socket.

        Raises:
            HostError: nothing listens on the socket.
        """
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise HostError(f"{path}: {error.strerror}") from error

    def run(self, script: str, timeout_s: float) -> tuple[int, str]:
        """Run a script in the guest's shell, without input; return its exit status and output.

        After an error the channel is unusable.

        Raises:
            HostError: the guest has ended, or the script timed out.
        """
        mark = secrets.token_hex(16)
        end = re.compile(rf"\n{mark} end (\d+)\n".encode())
        deadline = time.monotonic() + timeout_s
        output = bytearray()
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(f"{mark} {base64.b64encode(script.encode()).decode()} .\n".encode())
            while not (found := end.search(output)):
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                received = self._socket.recv(_READ_BYTES)
                if not received:
                    raise HostError(f"the guest ended while it ran {script}")
                output += received
        except TimeoutError:
            raise HostError(f"{script} did not end in the guest within {timeout_s:g} s") from None
        except OSError as error:
            raise HostError(f"{script} cannot be run in the guest: {error.strerror}") from error
        return int(found[1]), output[: found.start()].decode(errors="replace")

    def close(self) -> None:
        """Close the channel; can be called any number of times."""
        self._socket.close()
