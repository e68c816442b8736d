"""Login and logout."""

from __future__ import annotations

import math
from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import Field

from ringroad_lab.web.accounts import log_in, log_out
from ringroad_lab.web.local_path import local_path
from ringroad_lab.web.sessions import COOKIE_NAME, Session
from ringroad_lab.web.site import Site, Visitor

_Name = Annotated[str, Form(max_length=200)]
_Password = Annotated[str, Form(max_length=2000)]
_Token = Annotated[str, Form(max_length=200)]
_Target = Annotated[str, Field(max_length=4000)]


def login_pages(site: Site) -> APIRouter:
    """Make the routes."""
    router = APIRouter(include_in_schema=False)

    def login_form(request: Request, target: str, *, status: int = 200, problem: str = "", name: str = "") -> HTMLResponse:
        # A session from before the login goes on: another login page of this browser may be open.
        session = site.visitor(request).session or site.cookies.begin()
        visitor = Visitor(user=None, session=session)
        page = site.page(request, "login.html.j2", visitor, status=status, next=local_path(target), problem=problem, name=name)
        _set_cookie(request, page, session)
        return page

    def _set_cookie(request: Request, response: Response, session: Session) -> None:
        response.set_cookie(
            COOKIE_NAME,
            site.cookies.write(session),
            max_age=int(site.cookies.lifetime_s),
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https",
        )

    @router.get("/login")
    def show_login(request: Request, next: _Target = "/runs") -> Response:  # noqa: A002 - the name in the URL
        if site.visitor(request).user is not None:
            return RedirectResponse(local_path(next), 303)
        return login_form(request, next)

    @router.post("/login")
    def do_login(
        request: Request,
        form_token: _Token,
        name: _Name = "",
        password: _Password = "",
        next: Annotated[_Target, Form()] = "/runs",  # noqa: A002
    ) -> Response:
        site.check_form(Visitor(None, site.cookies.read(request.cookies.get(COOKIE_NAME))), form_token)
        address = request.client.host if request.client else ""
        wait_s = site.login_limit.attempt(address, name)
        if wait_s > 0:
            seconds = math.ceil(wait_s)
            when = f"{seconds} s" if seconds < 120 else f"{math.ceil(seconds / 60)} min"
            page = login_form(request, next, status=429, problem=f"Too many attempts failed. Try again in {when}.", name=name)
            page.headers["Retry-After"] = str(seconds)
            return page
        stamp = log_in(site.store, name, password)
        if stamp is None:
            return login_form(request, next, status=401, problem="Name or password are wrong.", name=name)
        site.login_limit.succeeded(address, name)
        response = RedirectResponse(local_path(next), 303)
        _set_cookie(request, response, site.cookies.begin(name, stamp))
        return response

    @router.post("/logout")
    def do_logout(request: Request, form_token: _Token) -> Response:
        visitor = site.writer(request)
        site.check_form(visitor, form_token)
        log_out(site.store, visitor.user or "")
        response = RedirectResponse("/login", 303)
        response.delete_cookie(COOKIE_NAME, httponly=True, samesite="lax")
        return response

    return router
