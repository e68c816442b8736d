"""Run os-ken's switch tester against Ringroad's OpenFlow.

It needs root. All runs in network, mount and process namespaces of its own, and nothing of it outlives this program.
The binaries are those of $RINGROAD_BIN_DIR. The status is 0 where each case ends as is known.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import bed
from cases import Case, all_cases, read_known_failures, write_cases
from verdicts import Verdict, differences, table, verdicts_in

HERE = Path(__file__).parent
KNOWN_FAILURES = HERE / "known-failures.txt"
# Only a failure takes this long between two outputs of the tester.
PATIENCE_S = 60.0
_INSIDE = "--inside"
# The kernel ends `unshare` with this process, `unshare` the first process within, and the kernel all others with that.
_NAMESPACES = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--"),
)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--tenth", action="store_true", help="a tenth of the cases, the same in each run")
    which.add_argument("--rates", action="store_true", help="only the cases of rates: select groups, meters")
    parser.add_argument("--only", metavar="TEXT", default="", help="of these, only the cases whose names contain TEXT")
    parser.add_argument("--open-vswitch", action="store_true", help="judge Open vSwitch, to compare")
    parser.add_argument(_INSIDE, action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def chosen(cases: list[Case], options: argparse.Namespace) -> list[Case]:
    """Return the cases that a run takes."""
    if options.tenth:
        cases = [case for case in cases if case.is_in_tenth]
    else:
        cases = [case for case in cases if case.needs_rates == options.rates]
    return [case for case in cases if options.only in case.name]


def built() -> Path:
    """Return the folder with the binaries."""
    folder = Path(os.environ.get("RINGROAD_BIN_DIR", HERE.parents[1] / "target" / "debug"))
    if not (folder / "ringroadd").is_file():
        raise SystemExit(f"{folder / 'ringroadd'} is not built; run `make build`")
    return folder


def started_tester(cases: Path, control_socket: Path) -> subprocess.Popen[bytes]:
    """Start the tester, and wait until it listens."""
    setup = {
        "ofp-tcp-listen-port": bed.CONTROLLER_PORT,
        "ofp-listen-host": "127.0.0.1",
        "test-switch-target": f"{bed.NUMBERS[bed.TARGET]:016x}",
        "test-switch-tester": f"{bed.NUMBERS[bed.TESTER]:016x}",
        "test-switch-dir": cases,
        "test-switch-interval": 0,
    }
    command = [sys.executable, "-m", "os_ken.cmd.manager", *(f"--{name}={value}" for name, value in setup.items())]
    extra = {"JUDGE_OVS_CONTROL_SOCKET": str(control_socket), "JUDGE_SENDING_INTERFACE": bed.interface(bed.TESTER, 1)}
    process = subprocess.Popen(
        [*command, str(HERE / "patient_tester.py")],
        env={**os.environ, **extra, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    # A new listener is not announced. A connection would be one of an unknown switch.
    listener = f":{bed.CONTROLLER_PORT:04X} 00000000:0000 0A"
    end = time.monotonic() + PATIENCE_S
    while listener not in Path("/proc/net/tcp").read_text():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            assert process.stdout is not None
            raise SystemExit(f"the tester does not listen:\n{process.stdout.read().decode()}")
        time.sleep(0.02)
    return process


def lines_of(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Return the lines that a process prints until it ends, or until it has printed nothing for long."""
    assert process.stdout is not None
    text = b""
    while select.select([process.stdout], [], [], PATIENCE_S)[0]:
        more = os.read(process.stdout.fileno(), 65536)
        if not more:
            return
        *lines, text = (text + more).split(b"\n")
        yield from (line.decode() for line in lines)
    yield f"Nothing came for {PATIENCE_S:.0f} s after: {text.decode()}"


def judged(cases: list[Case], binaries: Path | None, folder: Path) -> dict[str, Verdict]:
    """Run the tester against Ringroad, or against Open vSwitch without binaries; `folder` gets the files of the run."""
    bed.make_links()
    open_vswitch = bed.OpenVSwitch(folder / "open-vswitch")
    connect_tester = open_vswitch.add_switch(bed.TESTER)
    if binaries:
        connect_target = bed.start_ringroad(binaries, folder / "ringroad")
    else:
        connect_target = open_vswitch.add_switch(bed.TARGET)
    write_cases(cases, folder / "cases")
    process = started_tester(folder / "cases", open_vswitch.control_socket)
    connect_tester()
    connect_target()
    verdicts: dict[str, Verdict] = {}
    last_lines: deque[str] = deque(maxlen=30)

    def lines() -> Iterator[str]:
        for line in lines_of(process):
            last_lines.append(line)
            yield line

    for verdict in verdicts_in(lines(), {case.title for case in cases}):
        if verdict.name in verdicts:
            print(f"tried again: {verdict.name}\n    {verdicts[verdict.name].detail}")
        verdicts[verdict.name] = verdict
        if sys.stderr.isatty():
            print(f"{len(verdicts)} of {len(cases)}", end="\r", file=sys.stderr)
    if len(verdicts) < len(cases):
        print("The tester ended early. Its last lines:", *last_lines, sep="\n")
    return verdicts


def main() -> int:
    """Judge, and return the exit status."""
    options = arguments()
    # The kernel ends all that was started, too.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if os.geteuid() != 0:
        raise SystemExit("run it as root: it makes network namespaces")
    if not options.inside:
        command = (*_NAMESPACES, sys.executable, __file__, _INSIDE, *sys.argv[1:])
        return subprocess.run(command).returncode
    # What is kept during the run goes with the namespaces.
    for kind, place in (("sysfs", "/sys"), ("tmpfs", "/run")):
        subprocess.run(["mount", "-t", kind, kind, place], check=True)
    cases = all_cases()
    known_failures = read_known_failures(KNOWN_FAILURES, cases)
    cases = chosen(cases, options)
    if not cases:
        raise SystemExit("no such case")
    folder = Path("/run/judge")
    folder.mkdir()
    started = time.monotonic()
    verdicts = judged(cases, None if options.open_vswitch else built(), folder)
    print(*table(cases, verdicts), sep="\n")
    passed = sum(verdict.passed for verdict in verdicts.values())
    known = sum(not verdict.passed and name in known_failures for name, verdict in verdicts.items())
    print(f"known to fail: {known}; see {KNOWN_FAILURES.name} for the reasons")
    different = list(differences(cases, verdicts, known_failures))
    print(*different, sep="\n", end="\n" if different else "")
    print(f"{time.monotonic() - started:.0f} s")
    print(f"{passed} passed, {len(cases) - passed} failed")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
