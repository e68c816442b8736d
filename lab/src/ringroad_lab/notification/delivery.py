"""Sends to everybody who is to be told, each by itself and for no longer than it may take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ringroad_lab.notification.mail import MailSender
from ringroad_lab.notification.message import Notice
from ringroad_lab.notification.settings import Notifications, Target
from ringroad_lab.notification.unsent import TemporaryError, UnsentError
from ringroad_lab.notification.webhook import WebhookSender

_FIRST_WAIT_S = 0.5
_WAIT_GROWTH = 2.0


class Sender(Protocol):
    """Sends to one of them."""

    @property
    def target(self) -> Target:
        """Its settings."""

    @property
    def name(self) -> str:
        """For people, without a secret."""

    def send(self, notice: Notice, within_s: float) -> None:
        """Try once.

        Raises:
            TemporaryError: a later try may succeed.
            UnsentError: none will.
        """


def senders(settings: Notifications) -> list[Sender]:
    """Make them; what they need is read now, so that a run that would be told to nobody does not begin.

    Raises:
        ScenarioError: a secret is not there, or a URL is none.
    """
    return [*map(WebhookSender, settings.webhook), *map(MailSender, settings.mail)]


@dataclass
class _Sending:
    sender: Sender
    thread: threading.Thread | None = None
    problem: str = "no end within the time"


def tell(everybody: Sequence[Sender], notice: Notice, *, first_wait_s: float = _FIRST_WAIT_S) -> list[str]:
    """Send a notice to all, at once; return what went wrong, a sentence each.

    It takes no longer than the longest of them may: a server that answers byte by byte is left alone in its thread.
    """
    sendings = [_Sending(sender) for sender in everybody]
    began = time.monotonic()
    for each in sendings:
        each.thread = threading.Thread(target=_send, args=(each, notice, first_wait_s), daemon=True)
        each.thread.start()
    for each in sendings:
        assert each.thread is not None
        each.thread.join(max(0.0, began + each.sender.target.within_s - time.monotonic()))
    return [f"{each.sender.name}: {each.problem}" for each in sendings if each.problem]


def _send(sending: _Sending, notice: Notice, first_wait_s: float) -> None:
    try:
        retry(lambda left_s: sending.sender.send(notice, left_s), sending.sender.target.within_s, first_wait_s)
        sending.problem = ""
    except UnsentError as error:
        sending.problem = str(error)
    except Exception as error:
        sending.problem = f"{type(error).__name__} while it was sent"


def retry(attempt: Callable[[float], None], within_s: float, first_wait_s: float = _FIRST_WAIT_S) -> None:
    """Try until it succeeds; after each failure wait twice as long, or as long as the server says.

    Raises:
        UnsentError: it did not succeed within the time, or will not.
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
