"""First process of a sandbox: makes it fit to work in, runs one command, collects orphans, ends with the command's status.

Run by `sandbox.private`, as `python -m ringroad_lab.sandbox.first_process COMMAND...`. When it ends, the kernel ends every process of its
namespace, and with the last of them go the network, the mounts and the interfaces.
"""

from __future__ import annotations

import os
import subprocess
import sys

# Where tools keep what belongs to a machine: network namespaces by name, DPDK's and Open vSwitch's sockets, temporary files.
PRIVATE_FOLDER = "/run"


def main(argv: list[str]) -> int:
    """Prepare the sandbox, run the command, return its status as a shell would."""
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
        # It inherits the view of the machine's processes, too.
        command = subprocess.Popen(argv, env={**os.environ, "TMPDIR": temporary}, close_fds=False)
    except OSError as error:
        print(f"cannot run {argv[0]}: {error.strerror}", file=sys.stderr)
        return 127
    # Whatever loses its parent in here becomes a child of this process.
    while True:
        pid, status = os.wait()
        if pid == command.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
