"""Tells others of requests, as a dispatcher does it: each in a thread of its own, so that one who is slow or dead delays nobody else.

All that is known of it stands in the outbox, and one thread alone, the dispatcher's, uses that.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ringroad_lab.fleet.outbox import Notification, Outbox, wait_s
from ringroad_lab.notification.delivery import Target
from ringroad_lab.notification.interface import TemporaryError, UnsentError
from ringroad_lab.notification.message import Notice

FIRST_WAIT_S = 5.0
"""Until what failed is tried again; twice as long each time."""
# Those who are unreachable are tried with one of many messages, at least so often.
_MOST_REST_S = 60.0
# A claim outlives the longest try by so much, in which its end is noted.
_NOTED_WITHIN_S = 60.0
_TIDY_S = 3600.0
_LOOK_S = 0.2


@dataclass
class _Try:
    """An attempt to tell one of something."""

    target: Target
    notification: Notification
    notice: Notice
    began: float
    thread: threading.Thread | None = None
    error: UnsentError | None = None
    is_noted: bool = False


@dataclass
class _Rest:
    """How long nothing more is sent to a target that failed, by the monotonic clock."""

    failures: int = 0
    until: float = 0.0


@dataclass
class OutboxSender:
    """That of one dispatcher."""

    outbox: Outbox
    targets: Sequence[Target]
    say: Callable[[str], None] = print
    first_wait_s: float = FIRST_WAIT_S
    _tries: dict[str, _Try] = field(default_factory=dict)
    _rests: dict[str, _Rest] = field(default_factory=dict)
    _ended: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)
    _tidied_at: float = float("-inf")

    def look(self) -> None:
        """Note what was sent, and begin to send what is due.

        Raises:
            StoreFailedError: the rest is seen to at the next look.
        """
        self.note()
        if time.monotonic() - self._tidied_at > _TIDY_S:
            self.outbox.give_up_unknown([target.name for target in self.targets])
            self._tidied_at = time.monotonic()
        if not self.targets:
            # Another dispatcher may have somebody to tell.
            self.outbox.forget()
            return
        self.outbox.free()
        self.outbox.address(self._who)
        self._begin()

    def attend(self, stopping: threading.Event, for_s: float) -> None:
        """Go on so until told to stop, for a time.

        Raises:
            StoreFailedError: the rest is seen to at the next look.
        """
        end = time.monotonic() + for_s
        while not stopping.is_set() and (left_s := end - time.monotonic()) > 0:
            if not self.is_sending:
                stopping.wait(left_s)
                return
            with suppress(queue.Empty):
                self._ended.get(timeout=min(left_s, _LOOK_S))
                self.note()
                self._begin()

    def note(self) -> None:
        """Note what was sent, or was not within its time.

        Raises:
            StoreFailedError: it is noted at the next look.
        """
        for name, each in list(self._tries.items()):
            is_over = each.thread is not None and not each.thread.is_alive()
            if not each.is_noted:
                if not is_over and time.monotonic() - each.began < each.target.notifier.within_s + _LOOK_S:
                    continue
                self._note(each, each.error if is_over else TemporaryError("no end within the time"))
                each.is_noted = True
            if is_over:
                # One that does not end keeps its thread, and is sent nothing more until it has ended.
                del self._tries[name]

    @property
    def is_sending(self) -> bool:
        """Whether something is being sent, or was and is not noted."""
        return any(not each.is_noted for each in self._tries.values())

    @property
    def is_done(self) -> bool:
        """Whether nothing is left but what is to be tried again later."""
        return not self.targets or not (self.is_sending or self.outbox.is_any_new() or self._due())

    def _due(self) -> list[str]:
        now = time.monotonic()
        free = [name for name in self._by_name if name not in self._tries and self._rests.get(name, _Rest()).until <= now]
        return self.outbox.due(free) if free else []

    @property
    def _by_name(self) -> dict[str, Target]:
        return {target.name: target for target in self.targets}

    def _who(self, notice: Notice) -> list[str]:
        return [target.name for target in self.targets if self._concerns(target, notice)]

    def _concerns(self, target: Target, notice: Notice) -> bool:
        # Kinds are of other packages too. One that fails here is asked again as it delivers, and what it says is noted there.
        try:
            return target.notifier.concerns(notice)
        except Exception as error:
            self.say(f"{target.name}: {type(error).__name__} while it was asked whether it is concerned: {error}")
            return True

    def _begin(self) -> None:
        for name in self._due():
            target = self._by_name[name]
            notification = self.outbox.claim(name, target.notifier.within_s + _NOTED_WITHIN_S)
            if notification is None:
                continue
            begun = _Try(target, notification, self.outbox.notice(notification), time.monotonic())
            begun.thread = threading.Thread(target=self._send, args=(begun,), name=f"teller of {name}", daemon=True)
            self._tries[name] = begun
            begun.thread.start()

    def _send(self, begun: _Try) -> None:
        target = begun.target
        try:
            target.sender.deliver(begun.notice, begun.notification.delivery, target.notifier.within_s)
        except UnsentError as error:
            begun.error = error
        except Exception as error:
            # A fault of its kind, or the store's: it may be mended.
            begun.error = TemporaryError(f"{type(error).__name__} while it was sent: {error}")
        self._ended.put(target.name)

    def _note(self, each: _Try, error: UnsentError | None) -> None:
        target, notification = each.target, each.notification
        if error is None:
            self.outbox.delivered(notification)
        elif isinstance(error, TemporaryError):
            wait = wait_s(notification.attempts, self.first_wait_s, error.wait_s)
            self.outbox.failed(notification, str(error), wait, target.notifier.for_days)
        else:
            self.outbox.refused(notification, str(error))
        if error is not None and (notification.attempts == 1 or not isinstance(error, TemporaryError)):
            self.say(f"request {notification.request_id}: {target.name} was not told of {notification.stage}: {error}")
        rest = self._rests.setdefault(target.name, _Rest())
        rest.failures = rest.failures + 1 if isinstance(error, TemporaryError) else 0
        rest.until = time.monotonic() + min(_MOST_REST_S, wait_s(rest.failures, self.first_wait_s)) if rest.failures else 0.0
