"""What a rendezvous knows, and what becomes of it: pure functions of what happens, without clock, network or disk.

Barriers are met one after the other, from 1. A barrier is met when all members have come to it and are heard of; where the deadline is over
before, all is aborted. What is met stays met, and what is aborted stays aborted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Self

from pydantic import Field

from ringroad_lab.fleet.request import Name
from ringroad_lab.rendezvous.member import MAX_BARRIER, MAX_DEADLINE_S, MAX_REASON_CHARACTERS
from ringroad_lab.report.plain_text import printable
from ringroad_lab.trial import Frozen, Moment

MAX_MEMBERS = 64
Barrier = Annotated[int, Field(ge=0, le=MAX_BARRIER)]
Period = Annotated[float, Field(ge=0, le=MAX_DEADLINE_S)]
BootId = Annotated[str, Field(max_length=100)]


class OutOfStepError(Exception):
    """A member asks for what cannot be."""


class Attendance(Frozen):
    """What is known of a member."""

    arrived: Barrier = 0
    """The last barrier that it came to; 0: none yet."""
    boots: Annotated[int, Field(ge=0)] = 0
    """How many boots of its machine were seen."""
    boot_id: BootId = ""


class Abort(Frozen):
    """Why all is over."""

    reason: str
    barrier: Barrier = 0
    """Whose deadline was over; 0: somebody aborted."""


class Deadline(Frozen):
    """Of the barrier at which members wait."""

    at: Moment
    """Seconds since 1970."""
    after_s: Period
    """As the member said whose deadline it is."""
    of: str


class Meeting(Frozen):
    """A rendezvous."""

    members: Annotated[Mapping[Name, Attendance], Field(min_length=1, max_length=MAX_MEMBERS)]
    met: Barrier = 0
    """The last barrier that was met."""
    deadline: Deadline | None = None
    """The earliest of those who wait at the next barrier; None where nobody does."""
    abort: Abort | None = None

    @classmethod
    def of(cls, names: Iterable[str]) -> Self:
        """Return one that has not begun."""
        return cls(members={name: Attendance() for name in names})

    def hear(self, name: str, boot_id: str) -> Self:
        """Count the boots of a member that says something.

        Raises:
            OutOfStepError: there is no such member.
        """
        known = self._member(name)
        if known.boots and boot_id == known.boot_id:
            return self
        return self._with(name, known.model_copy(update={"boots": known.boots + 1, "boot_id": boot_id}))

    def arrive(self, name: str, barrier: int, deadline_s: float, left_s: float, now: float) -> Self:
        """Have a member come to a barrier: one that comes again, as after a reboot, keeps the deadline that it had.

        Args:
            name: The member.
            barrier: Number of the barrier.
            deadline_s: How long the member waits in all, s.
            left_s: How much of it is left, s.
            now: Seconds since 1970.

        Raises:
            OutOfStepError: there is no such member, or the barrier is not the next one.
        """
        known = self._member(name)
        if not 1 <= barrier <= self.met + 1:
            raise OutOfStepError(f"{name} comes to barrier {barrier}, but the next one is barrier {self.met + 1}")
        if self.abort or barrier <= max(self.met, known.arrived):
            return self
        mine = Deadline(at=now + min(left_s, deadline_s), after_s=deadline_s, of=name)
        first = mine if self.deadline is None else min(self.deadline, mine, key=lambda each: each.at)
        return self._with(name, known.model_copy(update={"arrived": barrier})).model_copy(update={"deadline": first})

    def abort_for(self, reason: str, name: str = "") -> Self:
        """Have it be over for all; where it is already, the first reason stands."""
        reason = printable(reason.strip()[:MAX_REASON_CHARACTERS]) or "no reason was given"
        return self if self.abort else self.model_copy(update={"abort": Abort(reason=f"{name}: {reason}" if name else reason)})

    def settle(self, now: float, silent: Mapping[str, str]) -> Self:
        """Meet the barrier, or abort where its deadline is over.

        Args:
            now: Seconds since 1970.
            silent: For people, since when each member is not heard of that is not heard of for too long.
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
        """Return who has not come to the next barrier."""
        return [name for name, known in self.members.items() if known.arrived <= self.met]

    def clamped(self, now: float) -> Self:
        """Return it as a server takes it that begins again: a clock that was set back makes no deadline longer than it was."""
        if self.deadline is None or self.deadline.at <= now + self.deadline.after_s:
            return self
        return self.model_copy(update={"deadline": self.deadline.model_copy(update={"at": now + self.deadline.after_s})})

    def _late(self, missing: Iterable[str], silent: Mapping[str, str]) -> Abort:
        assert self.deadline
        barrier, faults = self.met + 1, []
        for name in missing:
            known = self.members[name]
            told = [f"last at barrier {known.arrived}", f"{known.boots} boots", silent.get(name, "heard of")]
            faults.append(f"{name} is missing ({', '.join(told)})")
        faults += [f"{name} came, but is {silent[name]}" for name in silent if self.members[name].arrived == barrier]
        why = "; ".join(faults) or f"{self.deadline.of} came too late"
        return Abort(reason=f"barrier {barrier}: the {self.deadline.after_s:g} s of {self.deadline.of} are over: {why}", barrier=barrier)

    def _member(self, name: str) -> Attendance:
        try:
            return self.members[name]
        except KeyError:
            raise OutOfStepError(f"there is no member '{name}'; the members are {', '.join(self.members)}") from None

    def _with(self, name: str, known: Attendance) -> Self:
        return self.model_copy(update={"members": {**self.members, name: known}})
