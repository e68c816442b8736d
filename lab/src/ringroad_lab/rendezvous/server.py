"""The server of a rendezvous: answers members, keeps the state, and sees to deadlines.

The network is not trusted: who does not know the secret gets a greeting and no more, holds a place for some seconds at most, and cannot
take the place of a member.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import time
from collections import deque
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from ringroad_lab.rendezvous.meeting import Barrier, BootId, Meeting, OutOfStepError, Period
from ringroad_lab.rendezvous.member import GREETING, HOLD_S, MAX_QUESTION_BYTES, MAX_REASON_CHARACTERS, sign
from ringroad_lab.rendezvous.state_file import StateFile
from ringroad_lab.rendezvous.strangers import Strangers
from ringroad_lab.trial import Frozen

SILENCE_LIMIT_S = 30.0
_QUESTION_LIMIT_S = 5.0
_ANSWER_LIMIT_S = 5.0
# So many questions of one member are kept; a newer one ends the oldest.
_MAX_HELD = 4
_RETRY_S = 1.0


class _Question(Frozen):
    nonce: Annotated[str, Field(max_length=64)]


class _Arrive(_Question):
    ask: Literal["arrive"]
    member: Annotated[str, Field(max_length=64)]
    barrier: Barrier
    deadline_s: Annotated[Period, Field(gt=0)]
    left_s: Period
    boot: BootId = ""


class _Abort(_Question):
    ask: Literal["abort"]
    member: Annotated[str, Field(max_length=64)] = ""
    reason: Annotated[str, Field(max_length=MAX_REASON_CHARACTERS)]


class _Status(_Question):
    ask: Literal["status"]


_QUESTION: TypeAdapter[_Arrive | _Abort | _Status] = TypeAdapter(Annotated[_Arrive | _Abort | _Status, Field(discriminator="ask")])


class Server:
    """One rendezvous; all of it in one event loop."""

    def __init__(
        self,
        meeting: Meeting,
        state: StateFile,
        secret: bytes,
        *,
        silence_limit_s: float = SILENCE_LIMIT_S,
        say: Callable[[str], None] = print,
    ) -> None:
        """Take what is known, where it is kept, and the secret."""
        self._state = state
        self._secret = secret
        self._silence_limit_s = silence_limit_s
        self._say = say
        # A clock that is set while the server runs changes no deadline.
        self._began_at, self._began = time.time(), time.monotonic()
        self._meeting = meeting.clamped(self._began_at)
        self._heard: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._held: dict[str, deque[asyncio.Event]] = {name: deque() for name in meeting.members}
        self._strangers = Strangers(say)
        self._timer: asyncio.TimerHandle | None = None
        self._last_error = ""

    def begin(self) -> None:
        """See to deadlines from now on.

        Raises:
            OSError: the state cannot be kept.
        """
        self._state.save(self._meeting)
        self._look_at_the_clock()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """See to a connection."""
        try:
            answer = await self._converse(reader, writer)
            if answer is not None:
                writer.write(answer)
            writer.close()
            await asyncio.wait_for(writer.wait_closed(), _ANSWER_LIMIT_S)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # It went away, was silent for too long, or said too much. A member asks again.
            pass
        finally:
            writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
        with self._strangers.place(writer) as stranger:
            number = secrets.token_hex(16)
            writer.write(f"{GREETING}{number}\n".encode())
            line = (await asyncio.wait_for(reader.readuntil(b"\n"), _QUESTION_LIMIT_S)).decode(errors="replace").rstrip("\n")
            code, _, text = line.partition(" ")
            if not hmac.compare_digest(code.encode(), sign(self._secret, f"question {number}", text).encode()):
                stranger.count()
                return None
        try:
            found = await self._find_answer(_QUESTION.validate_json(text))
        except ValidationError as error:
            found = {"state": "refused", "why": f"the question is wrong: {error.errors(include_url=False)[0]['msg']}"}
        except OutOfStepError as error:
            found = {"state": "refused", "why": str(error)}
        told = json.dumps(found)
        return f"{sign(self._secret, f'answer {code}', told)} {told}\n".encode()

    async def _find_answer(self, question: _Arrive | _Abort | _Status) -> dict[str, Any]:
        match question:
            case _Arrive():
                return await self._arrive(question)
            case _Abort():
                if question.member:
                    self._hear(question.member)
                self._adopt(self._meeting.abort_for(question.reason, question.member))
        return self._status()

    async def _arrive(self, question: _Arrive) -> dict[str, Any]:
        name, barrier = question.member, question.barrier
        was_met = barrier <= self._meeting.met
        heard = self._meeting.hear(name, question.boot)
        self._adopt(heard.arrive(name, barrier, question.deadline_s, question.left_s, self._now()))
        self._hear(name)
        self._settle()
        pushed_out = asyncio.Event()
        held = self._held[name]
        held.append(pushed_out)
        if len(held) > _MAX_HELD:
            held.popleft().set()
        try:
            ends = time.monotonic() + HOLD_S
            while (found := self._answer_state(barrier, was_met))["state"] == "wait" and not pushed_out.is_set():
                left = ends - time.monotonic()
                if left <= 0:
                    break
                waits = [asyncio.ensure_future(each.wait()) for each in (self._changed, pushed_out)]
                await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                for wait in waits:
                    wait.cancel()
            return found
        finally:
            if pushed_out in held:
                held.remove(pushed_out)

    def _answer_state(self, barrier: int, was_met: bool) -> dict[str, Any]:
        meeting = self._meeting
        if barrier <= meeting.met:
            # Also where all was aborted since: who was told that it was met, and who was not, must not go different ways.
            return {"state": "met-before" if was_met else "met"}
        if meeting.abort:
            return {"state": "aborted", **meeting.abort.model_dump()}
        why = [f"{name} is missing" for name in meeting.missing()] or [f"{name} is {since}" for name, since in self._silent().items()]
        return {"state": "wait", "why": ", ".join(why)}

    def _status(self) -> dict[str, Any]:
        meeting, now = self._meeting, time.monotonic()
        members = {
            name: {
                "arrived": known.arrived,
                "boots": known.boots,
                "silent_s": round(now - self._heard[name], 1) if name in self._heard else None,
            }
            for name, known in meeting.members.items()
        }
        abort = meeting.abort.model_dump() if meeting.abort else {}
        return {"state": "aborted" if abort else "open", "met": meeting.met, "members": members, **abort}

    def _hear(self, name: str) -> None:
        if name not in self._meeting.members:
            raise OutOfStepError(f"there is no member '{name}'; the members are {', '.join(self._meeting.members)}")
        self._heard[name] = time.monotonic()

    def _silent(self) -> dict[str, str]:
        now, found = time.monotonic(), {}
        for name in self._meeting.members:
            heard = self._heard.get(name)
            if heard is None:
                found[name] = "not heard of since the server began"
            elif now - heard > self._silence_limit_s:
                found[name] = f"not heard of for {now - heard:.0f} s"
        return found

    def _now(self) -> float:
        return self._began_at + time.monotonic() - self._began

    def _settle(self) -> None:
        self._adopt(self._meeting.settle(self._now(), self._silent()))

    def _adopt(self, meeting: Meeting) -> None:
        """Keep what has changed, then tell it.

        Raises:
            OSError: it cannot be kept: then nothing has changed.
        """
        before = self._meeting
        if meeting == before:
            return
        try:
            self._state.save(meeting)
        except OSError as error:
            if str(error) != self._last_error:
                self._say(f"the state cannot be kept, so nobody is told of a change: {error}")
            self._last_error = str(error)
            raise
        self._last_error = ""
        self._meeting = meeting
        for line in _changes(before, meeting):
            self._say(line)
        self._changed.set()
        self._changed = asyncio.Event()
        self._look_at_the_clock()

    def _look_at_the_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._meeting.deadline is not None:
            left = self._meeting.deadline.at - self._now()
            self._timer = asyncio.get_running_loop().call_later(max(0.0, left), self._deadline)

    def _deadline(self) -> None:
        try:
            self._settle()
        except OSError:
            self._timer = asyncio.get_running_loop().call_later(_RETRY_S, self._deadline)
        else:
            # By a clock that counts in other steps it was just not over.
            self._look_at_the_clock()


def _changes(before: Meeting, after: Meeting) -> list[str]:
    told = []
    for name, known in after.members.items():
        was = before.members[name]
        if known.boots > was.boots > 0:
            told.append(f"{name} was booted again, {known.boots} boots")
        if known.arrived != was.arrived:
            told.append(f"{name} is at barrier {known.arrived}")
    if after.met != before.met:
        told.append(f"barrier {after.met} is met")
    if after.abort and not before.abort:
        told.append(f"aborted: {after.abort.reason}")
    return told


async def serve(listeners: list[Any], server: Server, ready: Callable[[], None]) -> None:
    """Serve at listening sockets until it is cancelled.

    Raises:
        OSError: the state cannot be kept.
    """
    server.begin()
    servers = [await asyncio.start_server(server.answer, sock=listener, limit=MAX_QUESTION_BYTES) for listener in listeners]
    ready()
    try:
        await asyncio.gather(*(each.serve_forever() for each in servers))
    finally:
        for each in servers:
            each.close()
