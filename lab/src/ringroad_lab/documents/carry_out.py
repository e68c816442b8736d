"""Runs the command of a row, and takes the figures out of its output."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ringroad_lab.documents.catalogue import Row
from ringroad_lab.documents.results import Conditions, RowResult
from ringroad_lab.documents.selection import find
from ringroad_lab.errors import MissingProgramError, RunStoppedError
from ringroad_lab.facts.machine import machine_facts
from ringroad_lab.host.interface import Host
from ringroad_lab.report.plain_text import printable
from ringroad_lab.ringroad_program import require_ringroad
from ringroad_lab.tied import tied

_LAB = "ringroad-lab"
# 4: a measurement of the laboratory's run is invalid, which does not concern its other figures.
_MEASURED = (0, 4)
_MOST_OUTPUT_BYTES = 64 * 1024 * 1024
_LINES_OF_FAILURE = 4


def _program_of(row: Row, host: Host) -> list[str]:
    """Return the program of a row's command with its arguments, as it is started on this machine.

    Raises:
        MissingProgramError: it is not installed.
    """
    name, *arguments = row.words
    if name == _LAB:
        return [sys.executable, "-P", "-m", "ringroad_lab.cli.main", *arguments, "--json"]
    if name == "ringroad":
        return [require_ringroad(host, name), *arguments, "--json"]
    return [host.require(name, name), *arguments]


@dataclass(frozen=True)
class ProcessorTimes:
    """What the machine's processors did until a moment; all values only grow.

    They are read without looking at other programs: in a container, or with packages of the checkout, those are not visible.
    """

    at_s: float
    processors: int
    busy_s: float
    """Time of all processors, except idle ones; with the time that the hypervisor gave to others."""
    own_s: float
    """Time of this process, and of its children that have ended, with theirs."""

    @classmethod
    def now(cls) -> ProcessorTimes:
        """Read the times."""
        lines = Path("/proc/stat").read_text().splitlines()
        ticks = [int(field) for field in lines[0].split()[1:]]
        # proc(5): user, nice, system, idle, iowait, irq, softirq, steal; guests' time is in user and nice.
        busy = sum(ticks[:3]) + sum(ticks[5:8])
        processors = sum(line.startswith("cpu") for line in lines) - 1
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        own_s = sum(each.ru_utime + each.ru_stime for each in own)
        return cls(time.monotonic(), processors, busy / os.sysconf("SC_CLK_TCK"), own_s)

    def others_ratio(self, before: ProcessorTimes) -> float:
        """Return the part of all processors' time since then that was neither idle nor used by own programs."""
        others_s = (self.busy_s - before.busy_s) - (self.own_s - before.own_s)
        whole_s = self.processors * (self.at_s - before.at_s)
        return min(1.0, max(0.0, others_s / whole_s)) if whole_s else 0.0


class RowRunner:
    """Runs rows on this machine."""

    def __init__(self, host: Host, show: Callable[[str], None]) -> None:
        """Set what shows a line of a command's progress.

        Raises:
            HostError: the machine's facts cannot be read.
            MissingProgramError: Ringroad is not installed.
        """
        self._host = host
        self._show = show
        facts = machine_facts(host)
        self._here = {
            "version": host.run([require_ringroad(host, "ringroad"), "--version"]).stdout.split()[-1],
            "processor": facts.get("processor", {}).get("model", "unknown"),
            "processors": ProcessorTimes.now().processors,
            "virtualization": facts.get("machine", {}).get("virtualization", "unknown"),
            "kernel": facts.get("kernel", {}).get("release", "unknown"),
        }

    def is_from_here(self, result: RowResult) -> bool:
        """Return whether a result has figures of this machine, kernel and version of Ringroad."""
        return result.failure is None and result.conditions.model_dump(include=set(self._here)) == self._here

    def run(self, document: str, rows: Sequence[Row]) -> list[RowResult]:
        """Run the command that rows share, and return their figures or why there are none.

        Raises:
            RunStoppedError: the user stopped it.
        """
        output, failure, conditions = self._run(rows[0])
        return [_result(document, row, output, failure, conditions) for row in rows]

    def _run(self, row: Row) -> tuple[object, str | None, Conditions]:
        started_at, before = time.time(), ProcessorTimes.now()
        output, failure = self._output(row)
        after = ProcessorTimes.now()
        times = {"started_at": started_at, "took_s": after.at_s - before.at_s, "others_ratio": after.others_ratio(before)}
        return output, failure, Conditions.model_validate({**self._here, **times})

    def _output(self, row: Row) -> tuple[object, str | None]:
        """Run a row's program to its end; return its output, read as JSON, and the reason if there is none."""
        name = row.words[0]
        try:
            argv = _program_of(row, self._host)
        except MissingProgramError as error:
            return None, str(error)
        last: deque[str] = deque(maxlen=_LINES_OF_FAILURE)
        with tempfile.TemporaryFile() as output:
            # In our own process group: Ctrl-C reaches it, too.
            with subprocess.Popen(
                tied(argv), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, text=True, errors="replace"
            ) as process:
                assert process.stderr is not None
                try:
                    for line in process.stderr:
                        if said := printable(line.rstrip()):
                            last.append(said)
                            self._show(said)
                    status = process.wait()
                except KeyboardInterrupt:
                    process.wait()
                    raise RunStoppedError("stopped by the user") from None
            output.seek(0)
            written = output.read(_MOST_OUTPUT_BYTES)
        if status not in _MEASURED:
            return None, f"{name} ended with status {status}: {_reason(last)}"
        # Some programs print several values, one a line; the last one is the result.
        for text in (written, written.strip().rpartition(b"\n")[2]):
            try:
                return json.loads(text), None
            except ValueError:
                pass
        return None, f"{name} printed no result as JSON"


def _result(document: str, row: Row, output: object, failure: str | None, conditions: Conditions) -> RowResult:
    figures = {each.label: found for each in row.figures if each.at and (found := find(output, each.at, each.over))}
    if failure is None and not figures:
        others = f"others had {conditions.others_ratio:.0%} of the processors' time"
        failure = f"its output has none of the figures: no measurement was valid; {others}"
    return RowResult(document=document, row=row.id, command=row.command or "", conditions=conditions, figures=figures, failure=failure)


def _reason(last: Sequence[str]) -> str:
    """Return why a program failed, by the end of what it printed; Ringroad's programs print an object."""
    try:
        said = json.loads(last[-1])
        return f"{said['error']}{'; ' if said.get('advice') else ''}{said.get('advice', '')}"
    except (IndexError, ValueError, TypeError, KeyError, AttributeError):
        return " / ".join(last) or "it gave no reason"
