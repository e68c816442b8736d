"""A run as JSON: the record itself, for `ringroad-lab import`."""

from __future__ import annotations

from typing import ClassVar

from ringroad_lab.comparison import RunComparison
from ringroad_lab.record import RunRecord
from ringroad_lab.report.interface import Reporter
from ringroad_lab.store.exchange import write_records


class JsonReporter(Reporter):
    """Renders the whole record."""

    title: ClassVar[str] = "the record itself, for `ringroad-lab import`"
    suffix: ClassVar[str] = ".json"
    media_type: ClassVar[str] = "application/json"

    def render(self, record: RunRecord, comparison: RunComparison | None = None) -> str:
        """Render the record."""
        return write_records((record,))
