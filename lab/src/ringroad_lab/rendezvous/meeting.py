"""State of a rendezvous and its transitions: pure functions of the events, without clock, network or disk.

Barriers are met one after the other, from 1. A barrier is met when all members have arrived and are in contact. If its deadline expires
first, the rendezvous is aborted. A met barrier stays met, and an aborted rendezvous stays aborted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Self

from pydantic import Field

from ringroad_lab.rendezvous.member import MAX_BARRIER, MAX_DEADLINE_S, MAX_REASON_CHARACTERS
from ringroad_lab.report.plain_text import printable
from ringroad_lab.text_types import Name
from ringroad_lab.trial import Frozen, Moment

MAX_MEMBERS = 64
Barrier = Annotated[int, Field(ge=0, le=MAX_BARRIER)]
Period = Annotated[float, Field(ge=0, le=MAX_DEADLINE_S)]
BootId = Annotated[str, Field(max_length=100)]


class OutOfStepError(Exception):
    """A member sent a request that is invalid in the current state."""


class Attendance(Frozen):
    """State of a member."""

    arrived: Barrier = 0
    """The last barrier at which the member arrived; 0: none yet."""
    boots: Annotated[int, Field(ge=0)] = 0
    """Number of observed boots of its machine."""
    boot_id: BootId = ""


class Abort(Frozen):
    """Reason of aborting the rendezvous."""

    reason: str
    barrier: Barrier = 0
    """The barrier whose deadline expired; 0: aborted by request."""


class Deadline(Frozen):
    """Deadline of the barrier at which members wait."""

    at: Moment
    """Seconds since 1970."""
    after_s: Period
    """The full period, from the member that set the deadline."""
    of: str


class Meeting(Frozen):
    """A rendezvous."""

    members: Annotated[Mapping[Name, Attendance], Field(min_length=1, max_length=MAX_MEMBERS)]
    met: Barrier = 0
    """The last barrier that was met."""
    deadline: Deadline | None = None
    """The earliest deadline of the members that wait at the next barrier; None if no member waits."""
    abort: Abort | None = None

    @classmethod
    def of(cls, names: Iterable[str]) -> Self:
        """Return a new rendezvous of these members."""
        return cls(members={name: Attendance() for name in names})

    def hear(self, name: str, boot_id: str) -> Self:
        """Record a request of a member, and count the boots of its machine.

        Raises:
            OutOfStepError: unknown member.
        """
        known = self._member(name)
        if known.boots and boot_id == known.boot_id:
            return self
        return self._with(name, known.model_copy(update={"boots": known.boots + 1, "boot_id": boot_id}))

    def arrive(self, name: str, barrier: int, deadline_s: float, left_s: float, now: float) -> Self:
        """Record the arrival of a member at a barrier. A member that arrives again, as after a reboot, keeps its first deadline.

        Args:
            name: The member.
            barrier: Number of the barrier.
            deadline_s: Total waiting time of the member, s.
            left_s: Remaining waiting time, s.
            now: Seconds since 1970.

        Raises:
            OutOfStepError: unknown member, or the barrier is not the next one.
        """
        known = self._member(name)
        if not 1 <= barrier <= self.met + 1:
            raise OutOfStepError(f"{name} arrives at barrier {barrier}, but the next one is barrier {self.met + 1}")
        if self.abort or barrier <= max(self.met, known.arrived):
            return self
        mine = Deadline(at=now + min(left_s, deadline_s), after_s=deadline_s, of=name)
        first = mine if self.deadline is None else min(self.deadline, mine, key=lambda each: each.at)
        return self._with(name, known.model_copy(update={"arrived": barrier})).model_copy(update={"deadline": first})

    def abort_for(self, reason: str, name: str = "") -> Self:
        """Abort the rendezvous for all members; the first reason is kept."""
        reason = printable(reason.strip()[:MAX_REASON_CHARACTERS]) or "no reason was given"
        return self if self.abort else self.model_copy(update={"abort": Abort(reason=f"{name}: {reason}" if name else reason)})

    def settle(self, now: float, silent: Mapping[str, str]) -> Self:
        """Meet the barrier if all members are ready, or abort if its deadline has expired.

        Args:
            now: Seconds since 1970.
            silent: By name of each member without contact for too long, a text such as "silent for 40 s".
        """
        if self.abort or self.deadline is None:
            return self
        missing = self.missing()
        if now >= self.deadline.at:
            return self.model_copy(update={"abort": self._late(missing, silent), "deadline": None})
        if missing or silent:
            return self
        return self.model_copy(update={"met": self.met + 1, "deadline": None})

    def missing(self) -> list[str]:
        """Return the members that have not arrived at the next barrier."""
        return [name for name, known in self.members.items() if known.arrived <= self.met]

    def clamped(self, now: float) -> Self:
        """Return the state for a restarted server: a clock that was set back does not extend a deadline."""
        if self.deadline is None or self.deadline.at <= now + self.deadline.after_s:
            return self
        return self.model_copy(update={"deadline": self.deadline.model_copy(update={"at": now + self.deadline.after_s})})

    def _late(self, missing: Iterable[str], silent: Mapping[str, str]) -> Abort:
        assert self.deadline
        barrier, faults = self.met + 1, []
        for name in missing:
            known = self.members[name]
            details = [f"last at barrier {known.arrived}", f"{known.boots} boots", silent.get(name, "in contact")]
            faults.append(f"{name} is missing ({', '.join(details)})")
        faults += [f"{name} arrived, but has been {silent[name]}" for name in silent if self.members[name].arrived == barrier]
        why = "; ".join(faults) or f"{self.deadline.of} arrived too late"
        limit = f"the deadline of {self.deadline.of}, {self.deadline.after_s:g} s, expired"
        return Abort(reason=f"barrier {barrier}: {limit}: {why}", barrier=barrier)

    def _member(self, name: str) -> Attendance:
        try:
            return self.members[name]
        except KeyError:
            raise OutOfStepError(f"there is no member '{name}'; the members are {', '.join(self.members)}") from None

    def _with(self, name: str, known: Attendance) -> Self:
        return self.model_copy(update={"members": {**self.members, name: known}})
