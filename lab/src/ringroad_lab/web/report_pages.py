"""Reports of a run: to read, and to download."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import Response

from ringroad_lab.comparison import compare_runs
from ringroad_lab.errors import ReportError
from ringroad_lab.report.html import HtmlReporter
from ringroad_lab.report.interface import REPORTERS
from ringroad_lab.report.rates import Rates
from ringroad_lab.scenario.near_miss import suggest
from ringroad_lab.trial import Frozen
from ringroad_lab.web.http_guard import REPORT_SECURITY_POLICY
from ringroad_lab.web.result_pages import check_run
from ringroad_lab.web.run_query import Text
from ringroad_lab.web.site import Site


class ReportQuery(Frozen):
    """Options of a report."""

    baseline: Text = None
    """Id of a run to compare with."""
    rates: Rates = Rates.DIRECTION


def report_pages(site: Site) -> APIRouter:
    """Make the routes."""
    router = APIRouter(include_in_schema=False)
    store = site.store

    @router.get("/runs/{run_id}/report.html")
    def show_report(request: Request, run_id: str, query: Annotated[ReportQuery, Query()]) -> Response:
        site.reader(request)
        record = query.rates.of(store.get_run(check_run(store, run_id)))
        comparison = None
        if query.baseline is not None:
            try:
                comparison = compare_runs(query.rates.of(store.get_run(check_run(store, query.baseline))), record)
            except ReportError as error:
                raise HTTPException(400, str(error)) from error
        response = Response(HtmlReporter().render(record, comparison), media_type="text/html")
        response.headers["Content-Security-Policy"] = REPORT_SECURITY_POLICY
        return response

    @router.get("/runs/{run_id}/reports/{form}")
    def download_report(request: Request, run_id: str, form: str) -> Response:
        site.reader(request)
        record = store.get_run(check_run(store, run_id))
        if form not in REPORTERS:
            raise HTTPException(404, f"Unknown report format '{form}'{suggest(form, REPORTERS)}")
        reporter = REPORTERS[form]()
        attached = {"Content-Disposition": f'attachment; filename="{run_id}{reporter.suffix}"'}
        return Response(reporter.render(record, None), media_type=reporter.media_type, headers=attached)

    return router
