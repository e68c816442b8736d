"""A watcher that works in a thread of its own: where its source hangs or fails, requests and other sources do not wait for it."""

from __future__ import annotations

import threading
from abc import abstractmethod
from dataclasses import dataclass

from ringroad_lab.errors import LabError
from ringroad_lab.fleet.sources.interface import Watcher

# A thread that does not end within this time is left to the end of the process.
_CLOSE_S = 5.0


@dataclass(frozen=True)
class Patience:
    """How long a source is waited for, in seconds."""

    answer_s: float = 30.0
    """For an answer; whoever takes longer hangs."""
    first_wait_s: float = 1.0
    """After a failure, until the next try; twice as long after each further one."""
    longest_wait_s: float = 60.0


class OwnThreadWatcher(Watcher):
    """What it has to do is done again and again in its thread, after a failure more and more seldom."""

    def __init__(self, name: str, patience: Patience | None = None) -> None:
        """Take the source's name."""
        self.name = name
        self.patience = patience or Patience()
        self.stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._problem = ""
        self.is_at_work = False
        """Whether the last that was heard of the source was good."""

    @abstractmethod
    def work(self) -> float:
        """Take the messages that are there, for as long as that goes well; return after how many seconds to do it again.

        Raises:
            LabError: the source or the store failed.
        """

    def interrupt(self) -> None:
        """Have `work` return soon. It is called in another thread."""

    def works_again(self) -> None:
        """Note that all goes well, whatever went wrong before."""
        self._problem, self.is_at_work = "", True

    def look(self) -> None:
        """Begin, if that is still to be done, and tell what goes wrong now."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"source {self.name}", daemon=True)
            self._thread.start()
        if problem := self._problem:
            raise LabError(problem)

    def close(self) -> None:
        """End."""
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
                # It is a fault of ours; the others, and the next try, are to go on all the same.
                self._problem = f"source '{self.name}' failed: {type(error).__name__}: {error}"
            if self._problem:
                self.is_at_work = False
                pause_s, wait_s = wait_s, min(2 * wait_s, self.patience.longest_wait_s)
            else:
                wait_s = self.patience.first_wait_s
            self.stopping.wait(pause_s)
