"""The page of a comparison."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from ringroad_lab.errors import ReportError
from ringroad_lab.report.rates import Rates
from ringroad_lab.store.result_store import LAST_STABLE, LATEST
from ringroad_lab.web.comparing import ComparisonQuery, UnknownRunError, read_comparison
from ringroad_lab.web.site import Site

# Number of runs that the form suggests; users can also name other runs.
_SUGGESTED = 100


def comparison_pages(site: Site) -> APIRouter:
    """Make the route."""
    router = APIRouter(include_in_schema=False)
    store = site.store

    @router.get("/compare")
    def show_comparison(request: Request, query: Annotated[ComparisonQuery, Query()]) -> Response:
        visitor = site.reader(request)
        comparison, problem, status = None, "", 200
        if query.baseline is not None and query.candidate is not None:
            try:
                comparison = read_comparison(store, query)
            except (UnknownRunError, ReportError) as error:
                problem, status = str(error), 400
        return site.page(
            request,
            "comparison.html.j2",
            visitor,
            status=status,
            query=query,
            rates=list(Rates),
            comparison=comparison,
            problem=problem,
            runs=store.summaries(limit=_SUGGESTED),
            names=[LATEST, *([LAST_STABLE] if store.last_stable() else []), *(entry.name for entry in store.baselines())],
            run_ids=[store.resolve(query.baseline or ""), store.resolve(query.candidate or "")] if comparison else [],
        )

    return router
