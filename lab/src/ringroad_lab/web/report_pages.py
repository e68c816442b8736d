"""Reports of a run: to read, and to download."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict

from ringroad_lab.comparison import compare_runs
from ringroad_lab.errors import ReportError
from ringroad_lab.report.csv import render_csv
from ringroad_lab.report.html import render_html
from ringroad_lab.report.markdown import render_markdown
from ringroad_lab.web.http_guard import REPORT_SECURITY_POLICY
from ringroad_lab.web.result_pages import check_run
from ringroad_lab.web.run_query import Text
from ringroad_lab.web.site import Site


class ReportQuery(BaseModel):
    """What is in a report beside the run, and whether it is to take along."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    baseline: Text = None
    """Id of a run to compare to."""
    download: bool = False


def report_pages(site: Site) -> APIRouter:
    """Make the routes."""
    router = APIRouter(include_in_schema=False)
    store = site.store

    @router.get("/runs/{run_id}/report.html")
    def show_report(request: Request, run_id: str, query: Annotated[ReportQuery, Query()]) -> Response:
        site.reader(request)
        record = store.get_run(check_run(store, run_id))
        comparison = None
        if query.baseline is not None:
            try:
                comparison = compare_runs(store.get_run(check_run(store, query.baseline)), record)
            except ReportError as error:
                raise HTTPException(400, str(error)) from error
        response = Response(render_html(record, comparison), media_type="text/html")
        response.headers["Content-Security-Policy"] = REPORT_SECURITY_POLICY
        if query.download:
            response.headers["Content-Disposition"] = _attachment(f"{run_id}.html")
        return response

    @router.get("/runs/{run_id}/report.md")
    def download_markdown(request: Request, run_id: str) -> Response:
        site.reader(request)
        return _download(render_markdown(store.get_run(check_run(store, run_id))), "text/markdown", f"{run_id}.md")

    @router.get("/runs/{run_id}/metrics.csv")
    def download_metrics(request: Request, run_id: str) -> Response:
        site.reader(request)
        return _download(render_csv(store.get_run(check_run(store, run_id))), "text/csv", f"{run_id}.csv")

    @router.get("/runs/{run_id}/record.json")
    def download_record(request: Request, run_id: str) -> Response:
        site.reader(request)
        return _download(store.get_run(check_run(store, run_id)).model_dump_json(), "application/json", f"{run_id}.json")

    return router


def _download(content: str, media_type: str, name: str) -> Response:
    return Response(content, media_type=media_type, headers={"Content-Disposition": _attachment(name)})


def _attachment(name: str) -> str:
    return f'attachment; filename="{name}"'
