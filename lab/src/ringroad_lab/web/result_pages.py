"""Pages of results: the list of runs, a run, a trend."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import RedirectResponse, Response

from ringroad_lab.errors import PluginError
from ringroad_lab.record import RunState
from ringroad_lab.report.figures import headline_grids, overview, status_groups, warnings
from ringroad_lab.report.interface import REPORTERS
from ringroad_lab.statistics.verdict import Verdict
from ringroad_lab.store.models import Run
from ringroad_lab.store.queries import TesterVerdict, TrendSubject
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.store.rows import RUN_ID
from ringroad_lab.web.audit import entries
from ringroad_lab.web.http_guard import CHART_SECURITY_POLICY
from ringroad_lab.web.reviews import read_review
from ringroad_lab.web.run_query import RunQuery
from ringroad_lab.web.site import Site
from ringroad_lab.web.trend import SUBJECT_FIELDS, TrendQuery, choose, read_trend
from ringroad_lab.web.trend_chart import trend_chart

_CHANGES_OF_A_RUN = 20


def check_run(store: ResultStore, run_id: str) -> str:
    """Return the id of a run.

    Raises:
        HTTPException: there is no such run.
    """
    if RUN_ID.fullmatch(run_id):
        with store.reading() as database:
            if database.get(Run, run_id) is not None:
                return run_id
    raise HTTPException(404, "There is no such run")


def result_pages(site: Site) -> APIRouter:
    """Make the routes."""
    router = APIRouter(include_in_schema=False)
    store = site.store

    @router.get("/")
    def start() -> Response:
        return RedirectResponse("/runs", 303)

    @router.get("/runs")
    def show_runs(request: Request, query: Annotated[RunQuery, Query()]) -> Response:
        visitor = site.reader(request)
        total = store.count(query.which)
        return site.page(
            request,
            "runs.html.j2",
            visitor,
            query=query,
            choices=store.choices(),
            states=list(RunState),
            verdicts=list(TesterVerdict),
            findings=list(reversed(Verdict)),
            runs=store.summaries(query.which, limit=query.page_runs, offset=query.offset),
            total=total,
            pages=max(1, -(-total // query.page_runs)),
            stable=store.last_stable(),
        )

    @router.get("/runs/{run_id}")
    def show_run(request: Request, run_id: str) -> Response:
        visitor = site.reader(request)
        record = store.get_run(check_run(store, run_id))
        with store.reading() as database:
            changes, _ = entries(database, run_id=run_id, limit=_CHANGES_OF_A_RUN)
            is_ended = database.get_one(Run, run_id).is_ended
        return site.page(
            request,
            "run.html.j2",
            visitor,
            run=record,
            request_for=site.requests.of_run(run_id),
            is_ended=is_ended,
            sentences=overview(record, None),
            warnings=warnings(record),
            grids=headline_grids(record),
            status_groups=status_groups(record),
            comparisons=store.comparisons(run_id),
            stored=read_review(store, run_id),
            verdicts=list(TesterVerdict),
            changes=changes,
            forms={form: kind.title for form, kind in REPORTERS.loadable().items() if not isinstance(kind, PluginError)},
            stable=store.last_stable(record.name, record.facts),
        )

    @router.get("/trends")
    def show_trend(request: Request, query: Annotated[TrendQuery, Query()]) -> Response:
        visitor = site.reader(request)
        choices = choose(store, query)
        trend = None
        if choices:
            subject = TrendSubject(**{choice.field: choice.chosen for choice in choices})
            trend = read_trend(store, subject, query.min_change_percent / 100)
        page = site.page(
            request,
            "trend.html.j2",
            visitor,
            fields=dict(zip(SUBJECT_FIELDS, ("Scenario", "Topology", "Device under test", "Method", "Frame", "Metric"), strict=True)),
            choices=choices,
            query=query,
            trend=trend,
            chart=trend_chart(trend) if trend else None,
        )
        page.headers["Content-Security-Policy"] = CHART_SECURITY_POLICY
        return page

    return router
