"""The JSON API: programs read the pages' content and send results."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError

from ringroad_lab.comparison import RunComparison
from ringroad_lab.errors import ReportError, value_problems
from ringroad_lab.record import RunRecord
from ringroad_lab.store.queries import TrendSubject
from ringroad_lab.store.rows import RunConflictError, RunRefusedError, indexed
from ringroad_lab.web.audit import Action, append
from ringroad_lab.web.comparing import ComparisonQuery, UnknownRunError, read_comparison
from ringroad_lab.web.http_guard import RECORD_PATH
from ringroad_lab.web.result_pages import check_run
from ringroad_lab.web.reviews import read_review
from ringroad_lab.web.run_query import RunQuery
from ringroad_lab.web.site import LoginNeededError, Site
from ringroad_lab.web.trend import SUBJECT_FIELDS, Trend, TrendQuery, read_trend

_SHOWN_PROBLEMS = 20


def api(site: Site) -> APIRouter:
    """Make the routes."""
    router = APIRouter(prefix="/api")
    store = site.store

    @router.get("/runs")
    def runs(request: Request, query: Annotated[RunQuery, Query()]) -> dict[str, Any]:
        """Return runs, newest first."""
        site.api_reader(request)
        found = store.summaries(query.which, limit=query.page_runs, offset=query.offset)
        return {"total": store.count(query.which), "page": query.page, "runs": [run.as_json() for run in found]}

    @router.get("/runs/{run_id}")
    def run(request: Request, run_id: str) -> Response:
        """Return the whole record of a run."""
        site.api_reader(request)
        return Response(store.get_run(check_run(store, run_id)).model_dump_json(), media_type="application/json")

    @router.get("/runs/{run_id}/review")
    def review(request: Request, run_id: str) -> dict[str, Any]:
        """Return the testers' review of a run."""
        site.api_reader(request)
        return read_review(store, check_run(store, run_id)).as_json()

    @router.get("/comparison")
    def comparison(request: Request, query: Annotated[ComparisonQuery, Query()]) -> RunComparison:
        """Return the comparison of two runs, or of two devices of one run."""
        site.api_reader(request)
        try:
            return read_comparison(store, query)
        except (UnknownRunError, ReportError) as error:
            raise HTTPException(400, str(error)) from error

    @router.get("/trend")
    def trend(request: Request, query: Annotated[TrendQuery, Query()]) -> Trend:
        """Return a metric over all runs of a scenario, with its change points."""
        site.api_reader(request)
        values = {field: getattr(query, field) for field in SUBJECT_FIELDS}
        missing = [field for field, value in values.items() if value is None]
        if missing:
            raise HTTPException(400, f"missing parameters: {', '.join(missing)}")
        found = read_trend(store, TrendSubject(**values), query.min_change_percent / 100)
        if found is None:
            raise HTTPException(404, "there is no such metric")
        return found

    @router.post(RECORD_PATH.removeprefix("/api"))
    async def import_run(request: Request) -> Response:
        """Store a run that was measured elsewhere; the body is its record."""
        name = await run_in_threadpool(site.token_name, request)
        if name is None:
            raise LoginNeededError
        return await run_in_threadpool(_import, site, name, await request.body())

    return router


def _import(site: Site, token: str, body: bytes) -> Response:
    try:
        record = RunRecord.model_validate_json(body)
    except ValidationError as error:
        return JSONResponse({"errors": value_problems(error)[:_SHOWN_PROBLEMS]}, 400)
    try:
        is_new = site.store.add_run(record)
    except RunConflictError as error:
        return JSONResponse({"errors": [str(error)]}, 409)
    except RunRefusedError as error:
        return JSONResponse({"errors": [str(error)]}, 400)
    if is_new:
        with site.store.writing() as database:
            append(database, site.settings.clock(), f"token {token}", Action.RUN_IMPORTED, run_id=record.run_id, new=indexed(record.name))
    return JSONResponse({"run_id": record.run_id, "is_new": is_new}, 201 if is_new else 200, {"Location": f"/api/runs/{record.run_id}"})
