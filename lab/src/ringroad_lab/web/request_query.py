"""The filters of lists of requests, from the query of a URL."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from ringroad_lab.fleet.requests import RequestFilter
from ringroad_lab.request.model import RequestState
from ringroad_lab.web.run_query import MAX_PAGE, Text, UrlQuery, none_if_empty

PAGE_REQUESTS = 50


class RequestQuery(UrlQuery):
    """Filters and page of a list of requests. Unknown parameters are rejected."""

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
