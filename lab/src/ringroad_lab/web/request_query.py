"""The filters of lists of requests, from the query of a URL."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ringroad_lab.fleet.requests import RequestFilter
from ringroad_lab.request.model import RequestState
from ringroad_lab.web.run_query import MAX_PAGE, Text, none_if_empty

PAGE_REQUESTS = 50


class RequestQuery(BaseModel):
    """Filters and page of a list of requests. Unknown parameters are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: Annotated[RequestState | None, BeforeValidator(none_if_empty)] = None
    source: Text = None
    owner: Text = None
    build: Text = None
    """Part of the build's name."""
    page: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 1

    @property
    def which(self) -> RequestFilter:
        """The store's filter."""
        return RequestFilter(state=self.state, source=self.source, owner=self.owner, build=self.build)

    @property
    def offset(self) -> int:
        """Number of requests before the page."""
        return (self.page - 1) * PAGE_REQUESTS

    def url(self, page: int) -> str:
        """Return the query of another page with the same filters."""
        values = self.model_dump(mode="json", exclude_defaults=True, exclude={"page"})
        return "?" + urlencode({**values, "page": page})
