"""The filters of lists of runs, from the query of a URL."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode

from pydantic import BeforeValidator, Field

from ringroad_lab.record import RunState
from ringroad_lab.statistics.verdict import Verdict
from ringroad_lab.store.queries import RunFilter, TesterVerdict
from ringroad_lab.trial import Frozen

MAX_TEXT_CHARACTERS = 200
MAX_PAGE = 100_000
MAX_PAGE_RUNS = 500


def none_if_empty(value: Any) -> Any:  # noqa: ANN401
    """Return None for an empty text: empty fields of a form are in the URL too."""
    return None if value == "" else value


Text = Annotated[str | None, Field(max_length=MAX_TEXT_CHARACTERS, pattern=r"^[^\x00-\x1f\x7f]*$"), BeforeValidator(none_if_empty)]
Day = Annotated[date | None, Field(ge=date(1970, 1, 1), le=date(9000, 1, 1)), BeforeValidator(none_if_empty)]


class UrlQuery(Frozen):
    """The query of the URL of a list that has pages."""

    def url(self, page: int) -> str:
        """Return the query of another page of the same list."""
        values = self.model_dump(mode="json", exclude_defaults=True, exclude={"page"})
        return "?" + urlencode({**values, "page": page})


class RunQuery(UrlQuery):
    """Filters and page of a list of runs. Unknown parameters are rejected: a misspelt filter must not show all runs."""

    scenario: Text = None
    dut: Text = None
    """Label or driver of a device."""
    version: Text = None
    """Part of the version of one of the devices' programs, or of a label."""
    state: Annotated[RunState | None, BeforeValidator(none_if_empty)] = None
    verdict: Annotated[TesterVerdict | None, BeforeValidator(none_if_empty)] = None
    finding: Annotated[Verdict | None, BeforeValidator(none_if_empty)] = None
    """Verdict of a stored comparison of the run."""
    since: Day = None
    """The first day, UTC."""
    until: Day = None
    """The last day, UTC."""
    page: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 1
    page_runs: Annotated[int, Field(ge=1, le=MAX_PAGE_RUNS)] = 50

    @property
    def which(self) -> RunFilter:
        """The store's filter."""
        return RunFilter(
            name=self.scenario,
            dut=self.dut,
            version=self.version,
            state=self.state,
            verdict=self.verdict,
            finding=self.finding,
            since=_midnight(self.since) if self.since else None,
            until=_midnight(self.until + timedelta(days=1)) if self.until else None,
        )

    @property
    def is_filtered(self) -> bool:
        """Whether anything but the page is given."""
        return self.which != RunFilter()

    @property
    def offset(self) -> int:
        """Number of runs before the page."""
        return (self.page - 1) * self.page_runs


def _midnight(day: date) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
