"""Keeps the bed of a run its own while the run goes on, and has it calibrated and left clean."""

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
from ringroad_lab.fleet.inventory import Bed
from ringroad_lab.record import RunState
from ringroad_lab.report.plain_text import printable
from ringroad_lab.run.events import CeilingFound, Event, SelfTestFailed
from ringroad_lab.sandbox.leftovers import RUN_VARIABLE, Traces, await_no_processes, left_behind
from ringroad_lab.scenario.model import Scenario
from ringroad_lab.store.result_store import ResultStore

# A few may fail before the lease ends.
_RENEWALS_A_LEASE = 4


class BedGuard:
    """Of one run. While the `with` block lasts its lease is renewed; a lost one ends the run at once."""

    def __init__(self, leases: BedLeases, lease: BedLease, calibration: Calibration) -> None:
        """Take the lease, just taken."""
        self.state: RunState | None = None
        """How the run ended; None: it has not."""
        self.fault = ""
        """Why the bed is not fit to measure on; empty: it is."""
        self.uses_huge_pages = False
        self._leases = leases
        self._lease = lease
        self._calibration = calibration
        self._until = lease.until
        self._lost: BedLostError | None = None
        self._end: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        # Apart from each other: a store that does not answer must not hold up who ends the run.
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._renew_on_and_on, self._await_end_of_lease)]

    def __enter__(self) -> BedGuard:
        """Begin to renew."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._is_over.set()

    @property
    def is_lost(self) -> bool:
        """Whether the bed is the run's no more."""
        return self._lost is not None

    @contextmanager
    def ending(self, end: Callable[[], None]) -> Iterator[None]:
        """Have `end` called as soon as the bed is lost, from another thread, until the end of the block."""
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
        """Renew the lease once. Where the store fails, the lease goes on until its end."""
        try:
            self._until = self._leases.renew(self._lease)
        except BedLostError as error:
            self._lose(error)
        except StoreError:
            self.look_at_clock()

    def look_at_clock(self) -> None:
        """Give the bed up where the lease has ended."""
        if self._leases.clock() >= self._until:
            self._lose(
                BedLostError(
                    f"the lease of run {self._lease.run_id[:8]} on bed {self._lease.bed} ended: the run stood still, or the store cannot "
                    "be reached"
                )
            )

    def check(self) -> None:
        """See whether a trial may begin: by the store, or where that fails by the clock.

        Raises:
            BedLostError: it may not, nor any later one.
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
        """See in a transaction that is to write something of the run whether it may.

        Raises:
            BedLostError: it may not.
        """
        if self._lost:
            raise self._lost
        self._leases.check_in(session, self._lease)

    def see(self, event: Event) -> None:
        """Compare what the generator carries by itself with what it carried.

        Raises:
            BedError: it is less.
        """
        try:
            if isinstance(event, SelfTestFailed):
                raise BedError(f"bed {self._lease.bed} failed its calibration: {event.text}")
            if isinstance(event, CeilingFound):
                self._calibration.judge(event.ceiling)
        except BedError as error:
            self.fault = str(error)
            raise

    def _lose(self, error: BedLostError) -> None:
        with self._lock:
            self._lost = self._lost or error
            if self._end:
                self._end()

    def _renew_on_and_on(self) -> None:
        while not self._is_over.wait(self._leases.lease_s / _RENEWALS_A_LEASE) and not self._lost:
            self.renew()

    def _await_end_of_lease(self) -> None:
        while not self._is_over.wait(max(0.01, self._until - self._leases.clock())) and not self._lost:
            self.look_at_clock()


@contextmanager
def occupied(
    name: str, bed: Bed, leases: BedLeases, results: ResultStore, run_id: str, scenarios: Sequence[Scenario]
) -> Iterator[BedGuard]:
    """Have a bed for a run until the end of the block, and see then whether the run left it clean.

    A bed that is not fit goes into quarantine. Where the run is not finished, that is an error; else its results count.

    Raises:
        BedError: the bed cannot be had, or is not fit.
        BedLostError: it was lost on the way.
    """
    before = Traces.now()
    lease = leases.take(name, run_id)
    guard = BedGuard(leases, lease, Calibration(results.fenced(lambda session: guard.check_in(session)), name, bed, run_id, scenarios))
    environment_before = os.environ.get(RUN_VARIABLE)
    os.environ[RUN_VARIABLE] = run_id
    with guard:
        try:
            if lease.lost_run_id and (left := await_no_processes(lease.lost_run_id)):
                guard.fault = f"run {lease.lost_run_id[:8]}, which lost it, goes on: {', '.join(left)}"
                raise BedError(f"bed {name} is not fit: {guard.fault}")
            yield guard
        finally:
            os.environ.pop(RUN_VARIABLE)
            if environment_before is not None:
                os.environ[RUN_VARIABLE] = environment_before
            _hand_back(guard, leases, lease, before)


def _hand_back(guard: BedGuard, leases: BedLeases, lease: BedLease, before: Traces) -> None:
    if guard.is_lost:
        # It is another's by now, whose processes would be taken for this one's.
        return
    left = left_behind(before, lease.run_id, with_huge_pages=guard.uses_huge_pages)
    unclean = f"clean-up failed: run {lease.run_id[:8]} left {', '.join(left)}" if left else ""
    fault = guard.fault or unclean
    ended = guard.state.value if guard.state else "not begun"
    try:
        leases.give_back(lease, f"{ended}; {fault}" if fault else ended, fault)
    except (BedLostError, StoreError) as error:
        # The lease ends by itself.
        print(f"ringroad-lab: warning: {printable(str(error))}", file=sys.stderr)
        return
    if unclean and guard.state is not RunState.FINISHED:
        raise BedError(f"bed {lease.bed}: {unclean}")
    if unclean:
        print(f"ringroad-lab: warning: bed {lease.bed}: {printable(unclean)}; it is in quarantine", file=sys.stderr)
