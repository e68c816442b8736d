"""A watcher with its own thread: if its source hangs or fails, requests and other sources do not wait for it."""

from __future__ import annotations

import threading
from abc import abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

from ringroad_lab.errors import LabError
from ringroad_lab.fleet.intake import Received, receive
from ringroad_lab.fleet.requests import MessageOutcome
from ringroad_lab.fleet.sources.interface import Intake, Source, Watcher
from ringroad_lab.request.message import Message

S = TypeVar("S", bound=Source)

# A thread that does not end within this time is left running until the process ends.
_CLOSE_S = 5.0


@dataclass(frozen=True)
class Patience:
    """Waits for a source, s."""

    answer_s: float = 30.0
    """Time limit of an answer; a source that takes longer counts as hanging."""
    first_wait_s: float = 1.0
    """Wait after a failure; twice as long after each further failure."""
    longest_wait_s: float = 60.0


class OwnThreadWatcher(Watcher, Generic[S]):
    """Repeats its work in a thread; after failures less and less often."""

    def __init__(self, name: str, source: S, intake: Intake, patience: Patience | None = None) -> None:
        """Take the source, by its name in the settings, and what takes its messages."""
        self.name = name
        self.source = source
        self.intake = intake
        self.patience = patience or Patience()
        self.stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._problem = ""
        self.is_at_work = False
        """Whether the last contact with the source succeeded."""

    @abstractmethod
    def work(self) -> float:
        """Take the available messages while that succeeds; return the seconds until the next call.

        Raises:
            LabError: the source or the store failed.
        """

    def interrupt(self) -> None:
        """Make `work` return soon. It is called in another thread."""

    def take(self, message: Message, what: str) -> None:
        """Make requests from a message; `what` names it for users."""
        self.report(receive(self.intake.requests, self.intake.rules, message), what)

    def report(self, received: Received, what: str) -> None:
        """Tell users of a message that made a request, or is unusable."""
        if received.outcome in (MessageOutcome.REQUESTED, MessageOutcome.DEAD):
            self.intake.say(f"source '{self.name}': {what}: {received.text}")

    def works_again(self) -> None:
        """Record that the source works, and clear its problem."""
        self._problem, self.is_at_work = "", True

    def look(self) -> None:
        """Start the thread unless it runs, and raise the current problem."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"source {self.name}", daemon=True)
            self._thread.start()
        if problem := self._problem:
            raise LabError(problem)

    def close(self) -> None:
        """Stop the thread."""
        self.stopping.set()
        self.interrupt()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        wait_s = self.patience.first_wait_s
        while not self.stopping.is_set():
            try:
                pause_s = self.work()
                self.works_again()
            except LabError as error:
                self._problem = f"source '{self.name}': {error}"
            except Exception as error:
                # A fault of our own must not stop the other sources or the next attempt.
                self._problem = f"source '{self.name}' failed: {type(error).__name__}: {error}"
            if self._problem:
                self.is_at_work = False
                pause_s, wait_s = wait_s, min(2 * wait_s, self.patience.longest_wait_s)
            else:
                wait_s = self.patience.first_wait_s
            self.stopping.wait(pause_s)
