"""Sends the notifications of a dispatcher: each target has its own thread, so that a slow or dead target delays no other.

All state is in the outbox, which only the dispatcher's thread uses.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ringroad_lab.fleet.outbox import Outbox, wait_s
from ringroad_lab.fleet.tables import Notification
from ringroad_lab.notification.delivery import Target
from ringroad_lab.notification.interface import TemporaryError, UnsentError
from ringroad_lab.notification.message import Notice

FIRST_WAIT_S = 5.0
"""Wait before a failed notification is retried; twice as long each time."""
# An unreachable target is tried with one of its notifications at least this often.
_MOST_REST_S = 60.0
# A claim lasts this much longer than the longest attempt, so that the end of the attempt can be recorded.
_NOTED_WITHIN_S = 60.0
_TIDY_S = 3600.0
_LOOK_S = 0.2


@dataclass
class _Try:
    """An attempt to deliver a notification."""

    target: Target
    notification: Notification
    notice: Notice
    began: float
    thread: threading.Thread | None = None
    error: UnsentError | None = None
    is_noted: bool = False


@dataclass
class _Rest:
    """Pause of a target that failed: its end by the monotonic clock."""

    failures: int = 0
    until: float = 0.0


@dataclass
class OutboxSender:
    """Sends the outbox to the targets of one dispatcher."""

    outbox: Outbox
    targets: Sequence[Target]
    say: Callable[[str], None] = print
    first_wait_s: float = FIRST_WAIT_S
    _tries: dict[str, _Try] = field(default_factory=dict)
    _rests: dict[str, _Rest] = field(default_factory=dict)
    _ended: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)
    _tidied_at: float = float("-inf")

    def look(self) -> None:
        """Record ended deliveries, and start those that are due.

        Raises:
            StoreFailedError: the rest is done at the next call.
        """
        self.note()
        if time.monotonic() - self._tidied_at > _TIDY_S:
            self.outbox.give_up_unknown([target.name for target in self.targets])
            self._tidied_at = time.monotonic()
        if not self.targets:
            # Another dispatcher may have recipients.
            self.outbox.forget()
            return
        self.outbox.free()
        self.outbox.address(self._recipients_of)
        self._begin()

    def attend(self, stopping: threading.Event, for_s: float) -> None:
        """Record deliveries as they end, and start due ones, for `for_s` seconds or until `stopping` is set.

        Raises:
            StoreFailedError: the rest is done at the next call.
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
        """Record deliveries that ended or timed out.

        Raises:
            StoreFailedError: the rest is recorded at the next call.
        """
        for name, each in list(self._tries.items()):
            is_over = each.thread is not None and not each.thread.is_alive()
            if not each.is_noted:
                if not is_over and time.monotonic() - each.began < each.target.notifier.within_s + _LOOK_S:
                    continue
                self._note(each, each.error if is_over else TemporaryError("delivery timed out"))
                each.is_noted = True
            if is_over:
                # A delivery that does not end keeps its thread, and its target is sent nothing more until then.
                del self._tries[name]

    @property
    def is_sending(self) -> bool:
        """Whether a delivery is under way or not recorded yet."""
        return any(not each.is_noted for each in self._tries.values())

    @property
    def is_done(self) -> bool:
        """Whether nothing is left except later retries."""
        return not self.targets or not (self.is_sending or self.outbox.is_any_new() or self._due())

    def _due(self) -> list[str]:
        now = time.monotonic()
        free = [name for name in self._by_name if name not in self._tries and self._rests.get(name, _Rest()).until <= now]
        return self.outbox.due(free) if free else []

    @property
    def _by_name(self) -> dict[str, Target]:
        return {target.name: target for target in self.targets}

    def _recipients_of(self, notice: Notice) -> list[str]:
        return [target.name for target in self.targets if self._concerns(target, notice)]

    def _concerns(self, target: Target, notice: Notice) -> bool:
        # Kinds can come from other packages. A kind that fails here is called again for the delivery, where its error is recorded.
        try:
            return target.notifier.concerns(notice)
        except Exception as error:
            self.say(f"{target.name}: {type(error).__name__} while checking whether the notification concerns it: {error}")
            return True

    def _begin(self) -> None:
        for name in self._due():
            target = self._by_name[name]
            notification = self.outbox.claim(name, target.notifier.within_s + _NOTED_WITHIN_S)
            if notification is None:
                continue
            begun = _Try(target, notification, self.outbox.notice(notification), time.monotonic())
            begun.thread = threading.Thread(target=self._send, args=(begun,), name=f"notifications of {name}", daemon=True)
            self._tries[name] = begun
            begun.thread.start()

    def _send(self, begun: _Try) -> None:
        target = begun.target
        try:
            target.sender.deliver(begun.notice, begun.notification.delivery, target.notifier.within_s)
        except UnsentError as error:
            begun.error = error
        except Exception as error:
            # A fault of the notifier's kind or of the store, which may be fixed later.
            begun.error = TemporaryError(f"{type(error).__name__} while sending: {error}")
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
            self.say(f"request {notification.request_id}: {target.name} was not notified of {notification.stage}: {error}")
        rest = self._rests.setdefault(target.name, _Rest())
        rest.failures = rest.failures + 1 if isinstance(error, TemporaryError) else 0
        rest.until = time.monotonic() + min(_MOST_REST_S, wait_s(rest.failures, self.first_wait_s)) if rest.failures else 0.0
