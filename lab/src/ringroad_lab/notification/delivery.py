"""Sends a notice to all recipients independently, each within its time limit."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ringroad_lab.notification.interface import Notifier, Sender, TemporaryError, UnsentError
from ringroad_lab.notification.message import Notice

_FIRST_WAIT_S = 0.5
_WAIT_GROWTH = 2.0


@dataclass(frozen=True)
class Target:
    """A recipient of notifications."""

    name: str
    """Unique name, for users and the store."""
    notifier: Notifier
    sender: Sender


def targets(notifiers: Iterable[Notifier]) -> list[Target]:
    """Create the senders. They read their secrets now, so that an error appears before the run begins.

    Raises:
        LabError: a secret is missing, or a setting is invalid.
    """
    found: dict[str, Target] = {}
    for notifier in notifiers:
        sender = notifier.make_sender()
        name, number = notifier.name or sender.address, 1
        while name in found:
            number += 1
            name = f"{notifier.name or sender.address} ({number})"
        found[name] = Target(name, notifier, sender)
    return list(found.values())


@dataclass
class _Sending:
    target: Target
    delivery: str
    thread: threading.Thread | None = None
    problem: str = "delivery timed out"


def notify(recipients: Sequence[Target], notice: Notice, *, first_wait_s: float = _FIRST_WAIT_S) -> list[str]:
    """Send a notice to all recipients in parallel; return a message for each failure.

    The call takes no longer than the recipients' longest time limit: the thread of a server that answers byte by byte is abandoned.
    """
    sendings = [_Sending(target, str(uuid.uuid4())) for target in recipients]
    began = time.monotonic()
    for each in sendings:
        each.thread = threading.Thread(target=_send, args=(each, notice, first_wait_s), daemon=True)
        each.thread.start()
    for each in sendings:
        assert each.thread is not None
        each.thread.join(max(0.0, began + each.target.notifier.within_s - time.monotonic()))
    return [f"{each.target.name}: {each.problem}" for each in sendings if each.problem]


def _send(sending: _Sending, notice: Notice, first_wait_s: float) -> None:
    target = sending.target

    def attempt(left_s: float) -> None:
        try:
            target.sender.deliver(notice, sending.delivery, left_s)
        except TemporaryError as error:
            # The caller may not wait for the next try.
            sending.problem = f"delivery timed out; the last try: {error}"
            raise

    try:
        retry(attempt, target.notifier.within_s, first_wait_s)
        sending.problem = ""
    except UnsentError as error:
        sending.problem = str(error)
    except Exception as error:
        sending.problem = f"{type(error).__name__} while sending"


def retry(attempt: Callable[[float], None], within_s: float, first_wait_s: float = _FIRST_WAIT_S) -> None:
    """Retry until success; after each failure wait twice as long, or as long as the server requests.

    Raises:
        UnsentError: no try succeeded within the time limit, or no try can succeed.
    """
    end, wait_s, tries = time.monotonic() + within_s, first_wait_s, 0
    while True:
        tries += 1
        try:
            return attempt(max(0.01, end - time.monotonic()))
        except TemporaryError as error:
            wait_s = max(wait_s, error.wait_s)
            if time.monotonic() + wait_s >= end:
                raise UnsentError(f"{error} ({tries} {'try' if tries == 1 else 'tries'})") from error
        time.sleep(wait_s)
        wait_s *= _WAIT_GROWTH
