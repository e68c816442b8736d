"""The outer side of a run: starts the inner process, stores each measurement as soon as it ends, and returns the whole record."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Protocol

from pydantic import ValidationError

from ringroad_lab.errors import BedError, BedLostError, BuildError, RunStoppedError
from ringroad_lab.facts.other_programs import OtherPrograms
from ringroad_lab.record import (
    DutRecord,
    GeneratorCeiling,
    LogExcerpt,
    Measurement,
    RunRecord,
    RunState,
    Series,
)
from ringroad_lab.run.events import (
    EVENTS,
    GO_LINE,
    STOP_LINE,
    Assignment,
    CeilingFound,
    Ended,
    Event,
    MeasurementDone,
    SetupEnded,
    SetupReady,
    TrialAsked,
    Warned,
)
from ringroad_lab.sandbox.private import Sandbox
from ringroad_lab.scenario.model import Scenario

INNER = (sys.executable, "-P", "-m", "ringroad_lab.run.inside")
# The end of the inner process's standard error that is kept.
_LAST_OUTPUT_BYTES = 8192


class RunStore(Protocol):
    """Stores a run while it is measured."""

    def begin_run(self, record: RunRecord) -> None:
        """Store a run that starts."""

    def add_measurement(self, run_id: str, measurement: Measurement) -> None:
        """Store a measurement of the run."""

    def end_run(self, record: RunRecord) -> None:
        """Store the end of the run."""


class Guard(Protocol):
    """Checks that a run still holds its bed."""

    def ending(self, end: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `end` from another thread as soon as the run must stop, until the end of the block."""

    def check(self) -> None:
        """Check whether a trial is allowed to start.

        Raises:
            BedLostError: the run must stop.
        """

    def see(self, event: Event) -> None:
        """Check an event of the run.

        Raises:
            BedError: the bed is not fit to measure on.
        """


class Supervisor:
    """Carries out one run."""

    def __init__(
        self,
        store: RunStore,
        watch: Callable[[Event], None],
        enter: Path | None = None,
        guard: Guard | None = None,
    ) -> None:
        """Take the store of the run, the callback for events, and the control group that the run enters.

        With a guard, each trial needs its permission.
        """
        self._store = store
        self._watch = watch
        self._enter = enter
        self._guard = guard

    def run(
        self,
        record: RunRecord,
        scenarios: tuple[Scenario, ...],
        conclude: Callable[[RunRecord], RunRecord],
        *,
        is_resumed: bool,
    ) -> tuple[RunRecord, int]:
        """Carry out the run; `record` is its head, with the measurements made before.

        The first SIGINT or SIGTERM ends the run after the current trial, the second at once; finished measurements are always kept.
        `conclude` completes the record before it is stored: it adds derived results, and decides whether a fully measured run continues.

        Returns:
            The whole record, and the exit status that the inner process requests.

        Raises:
            SandboxError: the inner process cannot be started. Later errors are in the record.
            BedLostError: the run lost its bed, and nothing more of the run is stored.
        """
        if not is_resumed:
            self._store.begin_run(record)
        tally = _Tally(record)
        measured = tuple(measurement.number for measurement in record.measurements)
        assignment = Assignment(scenarios=scenarios, measured=measured, asks=self._guard is not None)
        # An unnamed file disappears with this process, however the process ends.
        with tempfile.TemporaryFile() as errors:
            sandbox = Sandbox.start(INNER, private=all(scenario.private for scenario in scenarios), stderr=errors, enter=self._enter)
            try:
                ending = self._guard.ending(sandbox.kill) if self._guard else nullcontext()
                with self._stopping(sandbox) as is_killed, OtherPrograms() as others, ending:
                    ended = self._follow(sandbox, assignment, tally, record.run_id)
                if ended is None and self._guard:
                    self._guard.check()
            except BedError as error:
                sandbox.kill()
                ended = Ended(failure=str(error), exit_status=error.exit_status)
            except BedLostError:
                sandbox.kill()
                raise
            finally:
                sandbox.close()
            self._take_others(others, tally)
            if ended is None and is_killed():
                ended = Ended(is_stopped=True, exit_status=RunStoppedError.exit_status)
            elif ended is None:
                errors.seek(max(0, errors.seek(0, os.SEEK_END) - _LAST_OUTPUT_BYTES))
                last_output = errors.read().decode(errors="replace").strip()
                ended = Ended(failure=f"the measuring process ended early: {last_output or 'no output'}", exit_status=1)
        state = RunState.STOPPED if ended.is_stopped else RunState.FAILED if ended.failure else RunState.FINISHED
        if ended.failure and ended.exit_status == BuildError.exit_status:
            state = RunState.NOT_INSTALLED
        whole = conclude(tally.record(state, ended.failure))
        self._store.end_run(whole)
        return whole, ended.exit_status

    def _take_others(self, others: OtherPrograms, tally: _Tally) -> None:
        tally.take(SetupEnded(series=others.series()))
        for text in others.warnings():
            warning = Warned(text=text)
            tally.take(warning)
            self._watch(warning)

    def _follow(self, sandbox: Sandbox, assignment: Assignment, tally: _Tally, run_id: str) -> Ended | None:
        """Handle events until the last one; return None if the last event never came."""
        try:
            sandbox.stdin.write(assignment.model_dump_json() + "\n")
            sandbox.stdin.flush()
        except BrokenPipeError:
            return None
        for line in sandbox.stdout:
            try:
                event = EVENTS.validate_json(line)
            except ValidationError as error:
                return Ended(failure=f"the measuring process wrote an invalid event: {line[:200]!r}: {error}", exit_status=1)
            if isinstance(event, MeasurementDone):
                self._store.add_measurement(run_id, event.measurement)
            tally.take(event)
            self._watch(event)
            if self._guard:
                self._guard.see(event)
            if isinstance(event, TrialAsked):
                if self._guard:
                    self._guard.check()
                _send(sandbox, GO_LINE)
            if isinstance(event, Ended):
                return event
        return None

    @contextmanager
    def _stopping(self, sandbox: Sandbox) -> Iterator[Callable[[], bool]]:
        """Let signals stop the run: the first after the trial, the second at once. Yields a check for the second signal."""
        signals = 0

        def stop(_number: int, _frame: FrameType | None) -> None:
            nonlocal signals
            signals += 1
            if signals > 1:
                # The output ends with the process. Nothing is closed or written here: the signal can interrupt a read or a print.
                sandbox.kill()
                return
            _send(sandbox, STOP_LINE)

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield lambda: signals > 1
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _send(sandbox: Sandbox, line: str) -> None:
    """Send a line to the inner process in one write: a signal can arrive while another line is sent."""
    with suppress(BrokenPipeError, ValueError):
        os.write(sandbox.stdin.fileno(), line.encode())


class _Tally:
    """The results of a run so far."""

    def __init__(self, record: RunRecord) -> None:
        self._head = record
        self._measurements: dict[int, Measurement] = {measurement.number: measurement for measurement in record.measurements}
        self._duts: dict[str, DutRecord] = {dut.label: dut for dut in record.duts}
        # Ceilings that were measured again do not replace the first: the key has their cause.
        self._ceilings: dict[tuple[str, str, str], GeneratorCeiling] = {(c.transport, c.frame.name, c.cause): c for c in record.ceilings}
        self._series: list[Series] = list(record.series)
        self._logs: list[LogExcerpt] = list(record.logs)
        self._generator_version = record.generator_version
        self._warnings: dict[str, None] = dict.fromkeys(record.warnings)

    def take(self, event: Event) -> None:
        match event:
            case SetupReady():
                self._generator_version = event.generator_version or self._generator_version
                before = self._duts.get(event.dut.label, event.dut)
                if changed := before.changed_files(event.dut):
                    self._warnings[f"{event.dut.label}: {changed} changed during the run: its results come from several builds."] = None
                self._duts[event.dut.label] = event.dut
            case CeilingFound():
                ceiling = event.ceiling
                self._ceilings[ceiling.transport, ceiling.frame.name, ceiling.cause] = ceiling
            case MeasurementDone():
                self._measurements[event.measurement.number] = event.measurement
            case SetupEnded():
                self._series += event.series
                self._logs += event.logs
            case Warned():
                self._warnings[event.text] = None
            case _:
                pass

    def record(self, state: RunState, failure: str) -> RunRecord:
        update = {
            "ended_at": time.time(),
            "state": state,
            "failure": failure,
            "generator_version": self._generator_version,
            "duts": tuple(self._duts.values()),
            "ceilings": tuple(self._ceilings.values()),
            "measurements": tuple(measurement for _, measurement in sorted(self._measurements.items())),
            "series": _joined(self._series),
            "logs": tuple(self._logs),
            "warnings": tuple(self._warnings),
        }
        return self._head.model_copy(update=update)


def _joined(series: list[Series]) -> tuple[Series, ...]:
    """Join the samples of the same name from all starts of a device."""
    joined: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for part in series:
        joined.setdefault((part.name, part.subject, part.unit), []).extend(part.points)
    return tuple(
        Series(name=name, subject=subject, unit=unit, points=tuple(sorted(points))) for (name, subject, unit), points in joined.items()
    )
