"""The inner process: reads its assignment from its standard input, measures, and writes events to its standard output."""

from __future__ import annotations

import sys
import threading

from pydantic import ValidationError

from ringroad_lab.errors import LabError, RunStoppedError
from ringroad_lab.run.events import GO_LINE, STOP_LINE, Assignment, Ended, Event, StopRequested, TrialAsked
from ringroad_lab.run.schedule_runner import ScheduleRunner
from ringroad_lab.run.setups import RealSetups
from ringroad_lab.scenario.schedule import schedule


def main() -> int:
    """Carry out one assignment, and return the exit status."""
    emit = _EventWriter()
    try:
        assignment = Assignment.model_validate_json(sys.stdin.readline())
    except ValidationError as error:
        emit(Ended(failure=f"the assignment cannot be read: {error}", exit_status=1))
        return 1
    stopped, answers = threading.Event(), threading.Semaphore(0)
    threading.Thread(target=_read_lines, args=(stopped, answers, emit), daemon=True).start()
    ended = _run(assignment, emit, stopped, answers)
    emit(ended)
    return ended.exit_status


def _run(assignment: Assignment, emit: _EventWriter, stopped: threading.Event, answers: threading.Semaphore) -> Ended:
    def ask() -> None:
        emit(TrialAsked())
        answers.acquire()

    try:
        ScheduleRunner(schedule(assignment.scenarios), RealSetups(emit), emit, stopped.is_set, ask if assignment.asks else None).run(
            frozenset(assignment.measured)
        )
    except RunStoppedError as stop:
        return Ended(is_stopped=True, exit_status=stop.exit_status)
    except LabError as error:
        return Ended(failure=str(error), exit_status=error.exit_status)
    return Ended()


class _EventWriter:
    """Writes events, whole lines, from any thread. `Ended` is the last one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_ended = False
        self._out = sys.stdout
        # The output of libraries must not mix with the events.
        sys.stdout = sys.stderr

    def __call__(self, event: Event) -> None:
        with self._lock:
            # The interpreter aborts if the thread of the input writes while the process ends.
            if self._has_ended:
                return
            self._has_ended = isinstance(event, Ended)
            self._out.write(event.model_dump_json() + "\n")
            self._out.flush()


def _read_lines(stopped: threading.Event, answers: threading.Semaphore, emit: _EventWriter) -> None:
    for line in sys.stdin:
        if line == STOP_LINE:
            emit(StopRequested())
            stopped.set()
        elif line == GO_LINE:
            answers.release()
    # The input ends when the outer process ends. Release a waiting trial, which then sees the stop request.
    stopped.set()
    answers.release()


if __name__ == "__main__":
    sys.exit(main())
