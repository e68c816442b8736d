"""Holds the bed of a run until the run ends, and checks its calibration and its clean-up."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy.orm import Session

from ringroad_lab.errors import BedError, BedLostError, StoreError
from ringroad_lab.fleet.bed_leases import BedLease, BedLeases
from ringroad_lab.fleet.calibration import Calibration
from ringroad_lab.fleet.inventory import BedSettings
from ringroad_lab.record import RunState
from ringroad_lab.report.plain_text import printable
from ringroad_lab.run.events import CeilingFound, Event, SelfTestFailed
from ringroad_lab.sandbox.leftovers import RUN_VARIABLE, Traces, await_no_processes, left_behind
from ringroad_lab.scenario.model import Scenario
from ringroad_lab.store.result_store import ResultStore

# Several renewals can fail before the lease ends.
_RENEWALS_A_LEASE = 4


class BedGuard:
    """Guards the bed of one run. The `with` block renews the lease; when the lease is lost, the run ends at once."""

    def __init__(self, leases: BedLeases, lease: BedLease, calibration: Calibration) -> None:
        """Guard a lease that was just taken."""
        self.state: RunState | None = None
        """State in which the run ended; None: it has not ended."""
        self.fault = ""
        """Reason why the bed is not fit to measure on; empty: the bed is fit."""
        self.uses_huge_pages = False
        self._leases = leases
        self._lease = lease
        self._calibration = calibration
        self._until = lease.until
        self._lost: BedLostError | None = None
        self._end: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        # Two threads: a store that does not answer must not delay the end of the run.
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._renew_repeatedly, self._await_end_of_lease)]

    def __enter__(self) -> BedGuard:
        """Start renewing the lease."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop renewing the lease."""
        self._is_over.set()

    @property
    def is_lost(self) -> bool:
        """Whether the run has lost the bed."""
        return self._lost is not None

    @contextmanager
    def ending(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` from another thread as soon as the bed is lost, until the end of the block."""
        with self._lock:
            self._end = end
        if self._lost:
            end()
        try:
            yield
        finally:
            with self._lock:
                self._end = None

    def renew(self) -> None:
        """Renew the lease once. If the store fails, the lease stays valid until it expires."""
        try:
            self._until = self._leases.renew(self._lease)
        except BedLostError as error:
            self._lose(error)
        except StoreError:
            self.look_at_clock()

    def look_at_clock(self) -> None:
        """Give the bed up if the lease has expired."""
        if self._leases.clock() >= self._until:
            self._lose(
                BedLostError(
                    f"the lease of run {self._lease.run_id[:8]} on bed {self._lease.bed} expired: the run hung or was suspended, "
                    "or the store cannot be reached"
                )
            )

    def check(self) -> None:
        """Check whether a trial is allowed to start: by the store, or by the clock if the store fails.

        Raises:
            BedLostError: neither this trial nor any later trial is allowed.
        """
        self.look_at_clock()
        if self._lost:
            raise self._lost
        try:
            self._leases.check(self._lease)
        except BedLostError as error:
            self._lose(error)
            raise
        except StoreError:
            self.look_at_clock()
            if self._lost:
                raise self._lost from None

    def check_in(self, session: Session) -> None:
        """Check, in a transaction that writes results of the run, whether the run still holds the bed.

        Raises:
            BedLostError: the run has lost the bed.
        """
        if self._lost:
            raise self._lost
        self._leases.check_in(session, self._lease)

    def see(self, event: Event) -> None:
        """Check the calibration of the bed against the result of a generator's self-test.

        Raises:
            BedError: the self-test failed, or the ceiling is too low.
        """
        try:
            if isinstance(event, SelfTestFailed):
                raise BedError(f"bed {self._lease.bed} failed its calibration: {event.text}")
            if isinstance(event, CeilingFound):
                self._calibration.check(event.ceiling)
        except BedError as error:
            self.fault = str(error)
            raise

    def _lose(self, error: BedLostError) -> None:
        with self._lock:
            self._lost = self._lost or error
            if self._end:
                self._end()

    def _renew_repeatedly(self) -> None:
        while not self._is_over.wait(self._leases.lease_s / _RENEWALS_A_LEASE) and not self._lost:
            self.renew()

    def _await_end_of_lease(self) -> None:
        while not self._is_over.wait(max(0.01, self._until - self._leases.clock())) and not self._lost:
            self.look_at_clock()


@contextmanager
def occupied(
    name: str, bed: BedSettings, leases: BedLeases, results: ResultStore, run_id: str, scenarios: Sequence[Scenario]
) -> Iterator[BedGuard]:
    """Hold a bed for a run until the end of the block, and check then whether the run left the bed clean.

    A bed that is not fit goes into quarantine. This is an error if the run is not finished; else the results of the run count.

    Raises:
        BedError: the bed is not available, or is not fit.
        BedLostError: the bed was lost during the run.
    """
    before = Traces.now()
    lease = leases.take(name, run_id)
    guard = BedGuard(leases, lease, Calibration(results.fenced(lambda session: guard.check_in(session)), name, bed, run_id, scenarios))
    environment_before = os.environ.get(RUN_VARIABLE)
    os.environ[RUN_VARIABLE] = run_id
    with guard:
        try:
            if lease.lost_run_id and (left := await_no_processes(lease.lost_run_id)):
                guard.fault = f"run {lease.lost_run_id[:8]}, which lost the bed, is still running: {', '.join(left)}"
                raise BedError(f"bed {name} is not fit: {guard.fault}")
            yield guard
        finally:
            os.environ.pop(RUN_VARIABLE)
            if environment_before is not None:
                os.environ[RUN_VARIABLE] = environment_before
            _hand_back(guard, leases, lease, before)


def _hand_back(guard: BedGuard, leases: BedLeases, lease: BedLease, before: Traces) -> None:
    if guard.is_lost:
        # Another run has the bed now: its processes would be mistaken for processes of this run.
        return
    left = left_behind(before, lease.run_id, with_huge_pages=guard.uses_huge_pages)
    unclean = f"clean-up failed: run {lease.run_id[:8]} left {', '.join(left)}" if left else ""
    fault = guard.fault or unclean
    ended = guard.state.value if guard.state else "not started"
    try:
        leases.give_back(lease, f"{ended}; {fault}" if fault else ended, fault)
    except (BedLostError, StoreError) as error:
        # The lease expires by itself.
        print(f"ringroad-lab: warning: {printable(str(error))}", file=sys.stderr)
        return
    if unclean and guard.state is not RunState.FINISHED:
        raise BedError(f"bed {lease.bed}: {unclean}")
    if unclean:
        print(f"ringroad-lab: warning: bed {lease.bed}: {printable(unclean)}; it is in quarantine", file=sys.stderr)
