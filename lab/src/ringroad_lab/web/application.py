"""The web application: all pages and the API, behind the HTTP guard."""

from __future__ import annotations

import logging
import secrets
from pathlib import Path
from urllib.parse import urlencode

import plotly
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.sessions import SessionMiddleware
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from ringroad_lab import __version__
from ringroad_lab.errors import StoreError
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.web.api import api
from ringroad_lab.web.bed_pages import bed_pages
from ringroad_lab.web.comparison_pages import comparison_pages
from ringroad_lab.web.hooks import hooks
from ringroad_lab.web.http_guard import HOOKS_PATH, HttpGuard
from ringroad_lab.web.login_pages import login_pages
from ringroad_lab.web.report_pages import report_pages
from ringroad_lab.web.request_pages import request_pages
from ringroad_lab.web.result_pages import result_pages
from ringroad_lab.web.review_pages import review_pages
from ringroad_lab.web.settings import WebSettings
from ringroad_lab.web.site import LoginNeededError, Site, Visitor
from ringroad_lab.web.templating import STATIC_FOLDER

_LOG = logging.getLogger(__name__)
_PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
COOKIE_NAME = "ringroad_lab_session"
_CACHED = {"Cache-Control": "public, max-age=3600"}


def make_application(store: ResultStore, settings: WebSettings | None = None) -> ASGIApp:
    """Make the application of a store."""
    site = Site(store, settings or WebSettings())
    # FastAPI's own API pages load scripts from other sites.
    application = FastAPI(title="Ringroad lab", version=__version__, docs_url=None, redoc_url=None, openapi_url="/api/openapi.json")
    application.include_router(login_pages(site))
    application.include_router(result_pages(site))
    application.include_router(report_pages(site))
    application.include_router(comparison_pages(site))
    application.include_router(review_pages(site))
    application.include_router(request_pages(site))
    application.include_router(bed_pages(site))
    application.include_router(api(site))
    application.include_router(hooks(site))

    @application.get("/static/plotly.min.js", include_in_schema=False)
    def plotly_script() -> FileResponse:
        return FileResponse(_PLOTLY, media_type="text/javascript", headers=_CACHED)

    application.mount("/static", StaticFiles(directory=STATIC_FOLDER))
    _handle_errors(application, site)
    # Wrapped around the application, because error responses bypass its own middleware.
    sessions = SessionMiddleware(
        application,
        # A new key at each start, so a restart ends all sessions.
        secret_key=secrets.token_hex(32),
        session_cookie=COOKIE_NAME,
        max_age=site.settings.session_s,
        same_site="lax",
        https_only=site.settings.is_encrypted,
    )
    return HttpGuard(sessions, site.settings.host_names)


def _handle_errors(application: FastAPI, site: Site) -> None:
    def problem(request: Request, status: int, title: str, problems: list[str]) -> Response:
        if request.url.path.startswith(("/api/", HOOKS_PATH)):
            return JSONResponse({"errors": problems or [title]}, status)
        try:
            visitor = site.visitor(request)
        except StoreError:
            visitor = Visitor(None)
        return site.page(request, "problem.html.j2", visitor, status=status, title=title, problems=problems)

    @application.exception_handler(LoginNeededError)
    def login_needed(request: Request, _error: Exception) -> Response:
        if request.url.path.startswith("/api/"):
            response = problem(request, 401, "a token is needed: Authorization: Bearer TOKEN", [])
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        target = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
        query = "?" + urlencode({"next": target}) if request.method == "GET" and target != "/runs" else ""
        return RedirectResponse("/login" + query, 303)

    @application.exception_handler(RequestValidationError)
    def not_valid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        problems = [f"{'.'.join(str(part) for part in one['loc'][1:])}: {one['msg']}" for one in error.errors()]
        return problem(request, 400, "Invalid request", problems)

    @application.exception_handler(HTTPException)
    def http_problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        response = problem(request, error.status_code, error.detail, [])
        response.headers.update(error.headers or {})
        return response

    @application.exception_handler(StoreError)
    def store_problem(request: Request, error: Exception) -> Response:
        # The text can contain the location of the store.
        _LOG.error("%s", error)
        return problem(request, 503, "The result store failed", ["The error is in the server's log."])

    @application.exception_handler(Exception)
    def failure(request: Request, error: Exception) -> Response:
        return problem(request, 500, "The server failed", ["The error is in the server's log."])
