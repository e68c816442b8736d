"""The server of a rendezvous: answers members, saves the state, and enforces deadlines.

The network is not trusted. A client without the secret gets only a greeting, holds a place for a few seconds at most, and cannot displace a
member.
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
_REQUEST_LIMIT_S = 5.0
_ANSWER_LIMIT_S = 5.0
# Maximum number of held requests per member; a newer request ends the oldest.
_MAX_HELD = 4
_RETRY_S = 1.0


class _Request(Frozen):
    nonce: Annotated[str, Field(max_length=64)]


class _Arrive(_Request):
    ask: Literal["arrive"]
    member: Annotated[str, Field(max_length=64)]
    barrier: Barrier
    deadline_s: Annotated[Period, Field(gt=0)]
    left_s: Period
    boot: BootId = ""


class _Abort(_Request):
    ask: Literal["abort"]
    member: Annotated[str, Field(max_length=64)] = ""
    reason: Annotated[str, Field(max_length=MAX_REASON_CHARACTERS)]


class _Status(_Request):
    ask: Literal["status"]


_REQUEST: TypeAdapter[_Arrive | _Abort | _Status] = TypeAdapter(Annotated[_Arrive | _Abort | _Status, Field(discriminator="ask")])


class Server:
    """Serves one rendezvous in one event loop."""

    def __init__(
        self,
        meeting: Meeting,
        state: StateFile,
        secret: bytes,
        *,
        silence_limit_s: float = SILENCE_LIMIT_S,
        say: Callable[[str], None] = print,
    ) -> None:
        """Take the known state, the file that keeps it, and the secret."""
        self._state = state
        self._secret = secret
        self._silence_limit_s = silence_limit_s
        self._say = say
        # Setting the clock while the server runs does not change deadlines.
        self._began_at, self._began = time.time(), time.monotonic()
        self._meeting = meeting.clamped(self._began_at)
        self._heard: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._held: dict[str, deque[asyncio.Event]] = {name: deque() for name in meeting.members}
        self._strangers = Strangers(say)
        self._timer: asyncio.TimerHandle | None = None
        self._last_error = ""

    def begin(self) -> None:
        """Save the state, and start to enforce deadlines.

        Raises:
            OSError: the state cannot be saved.
        """
        self._state.save(self._meeting)
        self._set_timer()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection."""
        try:
            answer = await self._converse(reader, writer)
            if answer is not None:
                writer.write(answer)
            writer.close()
            await asyncio.wait_for(writer.wait_closed(), _ANSWER_LIMIT_S)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # The client disconnected, was silent for too long, or sent too much. A member retries.
            pass
        finally:
            writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
        with self._strangers.place(writer) as count_wrong_secret:
            number = secrets.token_hex(16)
            writer.write(f"{GREETING}{number}\n".encode())
            line = (await asyncio.wait_for(reader.readuntil(b"\n"), _REQUEST_LIMIT_S)).decode(errors="replace").rstrip("\n")
            code, _, text = line.partition(" ")
            if not hmac.compare_digest(code.encode(), sign(self._secret, f"question {number}", text).encode()):
                count_wrong_secret()
                return None
        try:
            found = await self._find_answer(_REQUEST.validate_json(text))
        except ValidationError as error:
            found = {"state": "refused", "why": f"invalid request: {error.errors(include_url=False)[0]['msg']}"}
        except OutOfStepError as error:
            found = {"state": "refused", "why": str(error)}
        reply = json.dumps(found)
        return f"{sign(self._secret, f'answer {code}', reply)} {reply}\n".encode()

    async def _find_answer(self, request: _Arrive | _Abort | _Status) -> dict[str, Any]:
        match request:
            case _Arrive():
                return await self._arrive(request)
            case _Abort():
                if request.member:
                    self._hear(request.member)
                self._adopt(self._meeting.abort_for(request.reason, request.member))
        return self._status()

    async def _arrive(self, request: _Arrive) -> dict[str, Any]:
        name, barrier = request.member, request.barrier
        was_met = barrier <= self._meeting.met
        heard = self._meeting.hear(name, request.boot)
        self._adopt(heard.arrive(name, barrier, request.deadline_s, request.left_s, self._now()))
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
            # All members must get the same result for a barrier, also after an abort.
            return {"state": "met-before" if was_met else "met"}
        if meeting.abort:
            return {"state": "aborted", **meeting.abort.model_dump()}
        why = [f"{name} is missing" for name in meeting.missing()] or [f"{name} has been {since}" for name, since in self._silent().items()]
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
                found[name] = "silent since the server started"
            elif now - heard > self._silence_limit_s:
                found[name] = f"silent for {now - heard:.0f} s"
        return found

    def _now(self) -> float:
        return self._began_at + time.monotonic() - self._began

    def _settle(self) -> None:
        self._adopt(self._meeting.settle(self._now(), self._silent()))

    def _adopt(self, meeting: Meeting) -> None:
        """Save a change, then report it to the members.

        Raises:
            OSError: the change cannot be saved; it is discarded.
        """
        before = self._meeting
        if meeting == before:
            return
        try:
            self._state.save(meeting)
        except OSError as error:
            if str(error) != self._last_error:
                self._say(f"the state cannot be saved, so changes are not reported: {error}")
            self._last_error = str(error)
            raise
        self._last_error = ""
        self._meeting = meeting
        for line in _changes(before, meeting):
            self._say(line)
        self._changed.set()
        self._changed = asyncio.Event()
        self._set_timer()

    def _set_timer(self) -> None:
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
            # The timer's clock has another resolution, so the deadline may not quite have expired.
            self._set_timer()


def _changes(before: Meeting, after: Meeting) -> list[str]:
    lines = []
    for name, known in after.members.items():
        was = before.members[name]
        if known.boots > was.boots > 0:
            lines.append(f"{name} rebooted, {known.boots} boots")
        if known.arrived != was.arrived:
            lines.append(f"{name} is at barrier {known.arrived}")
    if after.met != before.met:
        lines.append(f"barrier {after.met} is met")
    if after.abort and not before.abort:
        lines.append(f"aborted: {after.abort.reason}")
    return lines


async def serve(listeners: list[Any], server: Server, ready: Callable[[], None]) -> None:
    """Serve on listening sockets until cancelled.

    Raises:
        OSError: the state cannot be saved.
    """
    server.begin()
    servers = [await asyncio.start_server(server.answer, sock=listener, limit=MAX_QUESTION_BYTES) for listener in listeners]
    ready()
    try:
        await asyncio.gather(*(each.serve_forever() for each in servers))
    finally:
        for each in servers:
            each.close()
