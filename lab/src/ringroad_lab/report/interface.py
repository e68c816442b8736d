"""The interface of reporters: each makes one form of a run's report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from ringroad_lab.comparison import RunComparison
from ringroad_lab.record import RunRecord


class Reporter(ABC):
    """Writes a run, and its comparison with another where it can."""

    form: ClassVar[str]
    """As users name it: `html`."""
    title: ClassVar[str]
    """For people."""
    suffix: ClassVar[str] = ".txt"
    """Of its files: `.html`."""
    media_type: ClassVar[str] = "text/plain"
    """As HTTP calls it: `text/html` (RFC 6838)."""
    is_for_files: ClassVar[bool] = False
    """Whether it becomes a file where the user names none; else it goes to standard output."""
    compares: ClassVar[bool] = False
    """Whether it shows comparisons."""

    @abstractmethod
    def render(self, record: RunRecord, comparison: RunComparison | None) -> str:
        """Render a run; there is no comparison where `compares` is not set."""
