"""First process of a sandbox: sets the sandbox up, runs one command, reaps orphans, and exits with the command's status.

`sandbox.private` runs it as `python -m ringroad_lab.sandbox.first_process COMMAND...`. When it ends, the kernel kills every process of its
namespace; with the last process the kernel removes the network, the mounts and the interfaces.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ringroad_lab.sandbox.private import OUTSIDE, PARENT

# Tools keep machine-wide state here: network namespaces by name, DPDK's and Open vSwitch's sockets, temporary files.
PRIVATE_FOLDER = "/run"


def _is_orphaned() -> bool:
    """Return whether `unshare` ended before it asked the kernel to kill its child with it: nothing would end this process."""
    outside = os.environ[OUTSIDE].partition(":")[0]
    # The name of the program is in parentheses, and can contain anything.
    fields = Path(f"/proc/self/fd/{outside}/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return fields[1] != os.environ.pop(PARENT)


def main(argv: list[str]) -> int:
    """Prepare the sandbox, run the command, and return its status as a shell does."""
    if _is_orphaned():
        return 125
    steps = (
        # /sys shows the network of the namespace in which it was mounted.
        ("mount", "-t", "sysfs", "sysfs", "/sys"),
        ("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", PRIVATE_FOLDER),
        ("ip", "link", "set", "lo", "up"),
    )
    for step in steps:
        done = subprocess.run(step, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        if done.returncode:
            print(f"{' '.join(step)}: {done.stderr.strip()}", file=sys.stderr)
            return 125
    temporary = f"{PRIVATE_FOLDER}/tmp"
    os.mkdir(temporary, 0o1777)
    try:
        # The command also inherits the descriptor of the machine's /proc.
        command = subprocess.Popen(argv, env={**os.environ, "TMPDIR": temporary}, close_fds=False)
    except OSError as error:
        print(f"cannot run {argv[0]}: {error.strerror}", file=sys.stderr)
        return 127
    # Orphaned processes of the sandbox become children of this process.
    while True:
        pid, status = os.wait()
        if pid == command.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
