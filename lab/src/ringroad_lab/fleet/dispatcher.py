"""The dispatcher: takes requests in order, submits them to an engine, and follows each until there is a verdict.

Its whole state is in the store, so it can be killed at any time: the next dispatcher, or another, resumes its work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ringroad_lab.errors import BedError, LabError
from ringroad_lab.fleet.engine.interface import Engine, EngineError, Job, JobReport, JobState
from ringroad_lab.fleet.holder import machine_of
from ringroad_lab.fleet.leases import Leases
from ringroad_lab.fleet.outbox import Outbox
from ringroad_lab.fleet.outbox_sender import FIRST_WAIT_S, OutboxSender
from ringroad_lab.fleet.sources.interface import Watcher
from ringroad_lab.fleet.verdict import reach_verdict
from ringroad_lab.notification.delivery import Target
from ringroad_lab.record import RunState
from ringroad_lab.request.model import UNDER_WAY, RequestState
from ringroad_lab.request.table import Request
from ringroad_lab.store import models
from ringroad_lab.store.result_store import ResultStore

# Exit statuses of `ringroad-lab` for which a retry is pointless: an argument is wrong, a program is missing.
_HOPELESS = (2, 3)
# States of runs that get a verdict.
_ENDED_RUNS = (RunState.FINISHED, RunState.NOT_INSTALLED)
# A machine and its jobs are considered gone this long after the lease of its dispatcher ended.
ABANDONED_S = 3600.0
# A stopping dispatcher waits this long for a failing store.
_LAST_PATIENCE_S = 30.0


@dataclass(frozen=True)
class DispatcherSettings:
    """Settings of a dispatcher."""

    attempts: int = 3
    """Number of attempts after which a request is dead."""
    retry_wait_s: float = 60.0
    """Wait before the next attempt; n times as long after the n-th attempt."""
    poll_s: float = 2.0
    notify_wait_s: float = FIRST_WAIT_S
    """Wait before a failed notification is retried; twice as long each time."""


class Dispatcher:
    """Has requests measured by one engine, and notifies recipients."""

    def __init__(
        self,
        store: ResultStore,
        engine: Engine,
        leases: Leases,
        settings: DispatcherSettings | None = None,
        *,
        watchers: Sequence[Watcher] = (),
        recipients: Sequence[Target] = (),
        say: Callable[[str], None] = print,
    ) -> None:
        """Take the parts and the recipients of notifications."""
        self._store = store
        self._engine = engine
        self._leases = leases
        self._settings = settings or DispatcherSettings()
        self._watchers = watchers
        self._say = say
        self._outbox_sender = OutboxSender(Outbox(store, leases.holder), recipients, say, self._settings.notify_wait_s)
        self._obstacles: set[str] = set()
        self._reported: set[str] = set()
        self._reported_before: set[str] = set()
        """Messages of this pass and of the previous one: a repeated message is printed once."""

    def run(self, stopping: threading.Event, *, once: bool = False) -> None:
        """Dispatch until `stopping` is set; with `once`, until nothing is left to do."""
        patience_ends = float("inf")
        while True:
            self._reported_before, self._reported = self._reported, set()
            is_over = False
            # The store, the engine or a folder can be unavailable now. Nothing is lost: everything is retried.
            with self._reporting_errors():
                is_over = self._wind_up() if stopping.is_set() else self._step() and once
            if is_over:
                break
            if not stopping.is_set():
                self._pause(stopping)
                continue
            patience_ends = min(patience_ends, time.monotonic() + _LAST_PATIENCE_S) if self._reported else float("inf")
            if time.monotonic() > patience_ends:
                break
            time.sleep(min(self._settings.poll_s, 0.2))
        self._engine.release()
        for watcher in self._watchers:
            watcher.close()

    def _pause(self, stopping: threading.Event) -> None:
        """Wait until the next pass; send notifications meanwhile."""
        with self._reporting_errors():
            self._outbox_sender.attend(stopping, self._settings.poll_s)
            return
        stopping.wait(self._settings.poll_s)

    def _step(self) -> bool:
        """Do the work that is due now; return whether nothing is left to wait for."""
        self._leases.renew()
        with self._reporting_errors():
            self._outbox_sender.look()
        for request in self._leases.adopt(self._may_adopt):
            self._say(f"request {request.id}: taken over from {machine_of(request.lease_holder)}")
        for request in self._leases.held():
            self._try(self._advance, request)
        while self._leases.is_any_new() and self._engine.reserve():
            try:
                claimed = self._leases.claim(self._engine.may_go_on, self._engine.expected_key)
                if claimed is None:
                    break
                self._try(self._start, claimed)
            finally:
                self._engine.release()
            if self._reported:
                # Something failed: retry after a pause.
                break
        # Sources come last: an unavailable source must not delay requests.
        for watcher in self._watchers:
            with self._reporting_errors():
                watcher.look()
        obstacles = self._leases.obstacles()
        for obstacle in sorted(obstacles - self._obstacles):
            self._say(obstacle)
        self._obstacles = obstacles
        return not self._leases.held() and not self._leases.is_any_waiting() and self._outbox_sender.is_done

    @contextmanager
    def _reporting_errors(self) -> Iterator[None]:
        """Report an error and continue: the work is retried later."""
        try:
            yield
        except LabError as error:
            self._report_once(str(error))

    def _try(self, act: Callable[[Request], None], request: Request) -> None:
        """Act on a request. A failure does not affect the other requests."""
        with self._reporting_errors():
            try:
                act(request)
            except LabError:
                raise
            except Exception as error:
                why = f"the dispatcher failed on this request: {type(error).__name__}: {error}"
                self._say(f"request {request.id}: {why}")
                if request.state in UNDER_WAY:
                    self._leases.move(request, RequestState.DEAD, why, last_error=why, lease_holder="", lease_until=0.0)
                else:
                    self._leases.keep(request, lease_holder="", lease_until=0.0)

    def _may_adopt(self, request: Request, is_gone: bool) -> bool:
        is_mine = machine_of(request.lease_holder) == machine_of(self._leases.holder)
        return is_gone or is_mine or not self._engine.is_of_machine or request.lease_until + ABANDONED_S < time.time()

    def _start(self, request: Request) -> None:
        run = self._run(request)
        if run in _ENDED_RUNS:
            self._conclude(request)
            return
        beds = {name: self._leases.beds[name] for name in request.beds}
        job = Job(str(request.run_id), ("resume", str(request.run_id)) if run else _arguments(request), beds)
        if not self._leases.is_mine(request):
            return
        try:
            key = self._engine.submit(job)
        except EngineError as error:
            self._report_once(f"request {request.id}: {error}")
            self._leases.give_back(request, str(error), self._settings.retry_wait_s, counts=False)
            return
        self._say(f"request {request.id}: {request.build}, {request.scenario}: attempt {request.attempts}, run {job.name[:8]}")
        if key != request.job_key:
            self._leases.keep(request, job_key=key)

    def _advance(self, request: Request) -> None:
        """Advance a request that this dispatcher holds."""
        key, report = self._find_job(request)
        if request.state not in UNDER_WAY:
            # The request was cancelled, or superseded by a newer build.
            if report.state is JobState.ENDED:
                self._leases.keep(request, lease_holder="", lease_until=0.0)
            else:
                self._engine.cancel(key)
        elif report.state is JobState.RUNNING and request.state is RequestState.SUBMITTED:
            self._leases.move(request, RequestState.RUNNING)
        elif report.state is JobState.ENDED:
            if self._run(request) in _ENDED_RUNS:
                self._conclude(request)
            else:
                self._fail(request, report)

    def _find_job(self, request: Request) -> tuple[str, JobReport]:
        key = request.job_key or self._engine.find(str(request.run_id)) or ""
        if not key:
            # The dispatcher ended before it submitted the job, or the engine lost the job: the end of an earlier attempt does not count.
            return key, JobReport(JobState.ENDED, is_lost=True)
        return key, self._engine.state(key)

    def _run(self, request: Request) -> RunState | None:
        """Return the state of the run of a request; None if the run has not begun."""
        with self._store.reading() as session:
            run = session.get(models.Run, str(request.run_id))
            if run is None:
                return None
            return run.state if run.is_ended else RunState.STOPPED

    def _conclude(self, request: Request) -> None:
        record = self._store.get_run(str(request.run_id))
        verdict, remark = reach_verdict(self._store, record, request.order.baseline)
        values = {"verdict": str(verdict), "last_error": record.failure, "lease_holder": "", "lease_until": 0.0}
        if self._leases.move(request, RequestState.DONE, remark, **values):
            self._say(f"request {request.id}: {verdict}")

    def _fail(self, request: Request, report: JobReport) -> None:
        how = "ended" if report.exit_status is None else f"ended with status {report.exit_status}"
        why = f"attempt {request.attempts}: the run {how} before it was finished: {report.output or 'no output'}"
        self._say(f"request {request.id}: {why.splitlines()[-1]}")
        if report.is_lost:
            self._leases.give_back(request, why, self._settings.retry_wait_s, counts=False, last_error=why)
        elif report.exit_status == BedError.exit_status:
            # The bed failed, not the build: the request gets another bed, and its owner keeps the turn.
            self._leases.give_back(request, why, self._settings.retry_wait_s, counts=False, last_error=why, served_at=0.0)
        elif report.exit_status in _HOPELESS or request.attempts >= self._settings.attempts:
            self._leases.move(request, RequestState.DEAD, why, last_error=why, lease_holder="", lease_until=0.0)
        else:
            self._leases.give_back(request, why, self._settings.retry_wait_s * request.attempts, counts=True, last_error=why)

    def _wind_up(self) -> bool:
        """Stop the jobs of this machine and give their requests back; return whether that is done."""
        self._leases.renew()
        is_over = True
        for request in self._leases.held():
            if not self._engine.is_of_machine or self._engine.outlives_dispatchers:
                # The job continues, and the next dispatcher finds it.
                continue
            key, report = self._find_job(request)
            if report.state is not JobState.ENDED:
                self._engine.cancel(key)
                is_over = False
            elif request.state in UNDER_WAY and self._run(request) not in _ENDED_RUNS:
                self._leases.give_back(request, "the dispatcher was stopped", 0.0, counts=False)
            else:
                self._advance(request)
        # Record the deliveries under way, so that the next dispatcher does not repeat them.
        self._outbox_sender.note()
        return is_over and not self._outbox_sender.is_sending

    def _report_once(self, text: str) -> None:
        if text not in self._reported_before:
            self._say(text)
        self._reported.add(text)


def _arguments(request: Request) -> tuple[str, ...]:
    labels = {**request.order.labels, "build": request.build, "request": str(request.id)}
    return request.order.model_copy(update={"labels": labels}).run_arguments(request.scenario)
