"""The interface of reporters: each renders the report of a run in one form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from ringroad_lab.comparison import RunComparison
from ringroad_lab.kinds import Kinds
from ringroad_lab.record import RunRecord


class Reporter(ABC):
    """Renders a run, and its comparison with another run if supported."""

    title: ClassVar[str]
    """Title for people."""
    suffix: ClassVar[str] = ".txt"
    """Suffix of its files: `.html`."""
    media_type: ClassVar[str] = "text/plain"
    """Media type: `text/html` (RFC 6838)."""
    is_for_files: ClassVar[bool] = False
    """Whether the report is written to a file by default; else to standard output."""
    compares: ClassVar[bool] = False
    """Whether it shows comparisons."""

    @abstractmethod
    def render(self, record: RunRecord, comparison: RunComparison | None = None) -> str:
        """Render a run; `comparison` is None unless `compares` is set."""


REPORTERS: Kinds[Reporter] = Kinds(
    "ringroad_lab.reporters",
    Reporter,
    {
        "html": "report.html:HtmlReporter",
        "markdown": "report.markdown:MarkdownReporter",
        "json": "report.json:JsonReporter",
        "csv": "report.csv:CsvReporter",
        "junit": "report.junit:JunitReporter",
        "tmt": "report.tmt_results:TmtReporter",
    },
)
