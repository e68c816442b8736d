"""The state of a rendezvous after random events in random order, including restarts of the server."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ringroad_lab.rendezvous.meeting import Meeting, OutOfStepError

NAMES = ("generator", "dut", "dut2")
names = st.sampled_from(NAMES)


class AnyMeeting(RuleBasedStateMachine):
    """A rendezvous with random events from random members."""

    def __init__(self) -> None:
        super().__init__()
        self.meeting = Meeting.of(NAMES)
        self.now = 1e9
        self.met_by: dict[int, set[str]] = {}
        """By barrier, the members that arrived, as recorded by the test."""
        self.silent: dict[str, str] = {}

    def adopt(self, meeting: Meeting) -> None:
        before, self.meeting = self.meeting, meeting
        assert before.met <= meeting.met <= before.met + 1
        if meeting.met > before.met:
            assert self.met_by[meeting.met] == set(NAMES)
            assert not self.silent
            assert before.deadline is not None
            assert self.now < before.deadline.at
            assert meeting.abort is None
        if before.abort:
            assert meeting.abort == before.abort
            assert meeting.met == before.met
        if before.deadline and meeting.deadline:
            assert meeting.deadline.at <= before.deadline.at

    @rule(name=names, step=st.sampled_from([-1, 0, 1]), deadline_s=st.floats(0.1, 100), used=st.floats(0, 1))
    def arrive(self, name: str, step: int, deadline_s: float, used: float) -> None:
        barrier = self.meeting.met + step
        if barrier < 1:
            return
        known = self.meeting.members[name].arrived
        self.adopt(self.meeting.arrive(name, barrier, deadline_s, deadline_s * used, self.now))
        if not self.meeting.abort:
            self.met_by.setdefault(barrier, set()).add(name)
            assert self.meeting.members[name].arrived == max(barrier, known)

    @rule(name=names, step=st.integers(2, 5))
    def arrive_out_of_step(self, name: str, step: int) -> None:
        with pytest.raises(OutOfStepError):
            self.meeting.arrive(name, self.meeting.met + step, 1, 1, self.now)

    @rule(name=names, boot=st.sampled_from(["", "a", "b"]))
    def hear(self, name: str, boot: str) -> None:
        before = self.meeting.members[name]
        self.adopt(self.meeting.hear(name, boot))
        after = self.meeting.members[name]
        assert after.boots - before.boots == (before.boots == 0 or boot != before.boot_id)
        assert self.meeting.hear(name, boot) == self.meeting
        self.silent.pop(name, None)

    @rule(name=names)
    def fall_silent(self, name: str) -> None:
        self.silent[name] = "silent for 40 s"

    @rule(later_s=st.floats(0, 60))
    def settle(self, later_s: float) -> None:
        self.now += later_s
        waiting = self.meeting.deadline
        self.adopt(self.meeting.settle(self.now, self.silent))
        if waiting and self.now >= waiting.at:
            # No member waits beyond a deadline, and the reason names the missing members.
            assert self.meeting.deadline is None
            assert self.meeting.abort
            assert self.meeting.abort.barrier == self.meeting.met + 1
            missing = set(NAMES) - self.met_by[self.meeting.met + 1]
            assert all(f"{name} is missing" in self.meeting.abort.reason for name in missing)

    @rule(reason=st.text(max_size=600), name=st.sampled_from(["", *NAMES]))
    @precondition(lambda self: self.meeting.met > 2)
    def abort(self, reason: str, name: str) -> None:
        self.adopt(self.meeting.abort_for(reason, name))
        assert self.meeting.abort
        assert self.meeting.abort.reason.isprintable()

    @rule(back_s=st.floats(0, 1e6))
    def restart(self, back_s: float) -> None:
        """The server restarts with the state on disk, and with a clock that was set back."""
        self.now -= back_s
        again = Meeting.model_validate_json(self.meeting.model_dump_json())
        assert again == self.meeting
        self.meeting = again.clamped(self.now)
        if self.meeting.deadline:
            assert self.meeting.deadline.at <= self.now + self.meeting.deadline.after_s

    @invariant()
    def members_are_in_step(self) -> None:
        assert all(known.arrived <= self.meeting.met + 1 for known in self.meeting.members.values())
        waiting = [name for name, known in self.meeting.members.items() if known.arrived > self.meeting.met]
        assert bool(waiting) == (self.meeting.deadline is not None) or self.meeting.abort


AnyMeeting.TestCase.settings = settings(max_examples=300, stateful_step_count=40)
TestAnyMeeting = AnyMeeting.TestCase


def test_the_reason_names_the_missing_and_the_silent_members() -> None:
    meeting = Meeting.of(NAMES).hear("dut", "a").hear("dut", "b").arrive("generator", 1, 60, 60, 100.0)
    aborted = meeting.arrive("dut2", 1, 600, 600, 101.0).settle(160.0, {"dut": "silent for 50 s", "dut2": "silent for 40 s"})
    assert aborted.abort
    assert aborted.abort.reason == (
        "barrier 1: the deadline of generator, 60 s, expired: dut is missing (last at barrier 0, 2 boots, silent for 50 s); "
        "dut2 arrived, but has been silent for 40 s"
    )
