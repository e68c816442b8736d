"""A report of one line."""

from ringroad_lab.comparison import RunComparison
from ringroad_lab.record import RunRecord
from ringroad_lab.report.interface import Reporter


class OneLine(Reporter):
    """Tells how many measurements a run has."""

    title = "one line (an example)"

    def render(self, record: RunRecord, comparison: RunComparison | None) -> str:
        """Write the line."""
        return f"{record.name}: {len(record.measurements)} measurements of {', '.join(dut.label for dut in record.duts)}\n"
