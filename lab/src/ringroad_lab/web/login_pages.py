"""Login and logout."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import Field

from ringroad_lab.web.local_path import local_path
from ringroad_lab.web.site import Site, Visitor

_Token = Annotated[str, Field(max_length=200)]
_Target = Annotated[str, Field(max_length=4000)]


def login_pages(site: Site) -> APIRouter:
    """Make the routes."""
    router = APIRouter(include_in_schema=False)

    def login_form(request: Request, target: str, *, status: int = 200, problem: str = "") -> Response:
        return site.page(request, "login.html.j2", Visitor(None), status=status, next=local_path(target), problem=problem)

    @router.get("/login")
    def show_login(request: Request, token: _Token = "", next: _Target = "/runs") -> Response:  # noqa: A002 - the name in the URL
        # The server prints a link with its owner's token. Links with other tokens do not log in.
        if (site.is_owner(token) and site.log_in(request, token)) or site.visitor(request).user is not None:
            return RedirectResponse(local_path(next), 303)
        if token:
            return login_form(
                request, next, status=401, problem="The link is from an earlier start of the server. The server printed a new link."
            )
        return login_form(request, next)

    @router.post("/login")
    def do_login(
        request: Request,
        token: Annotated[_Token, Form()] = "",
        next: Annotated[_Target, Form()] = "/runs",  # noqa: A002
    ) -> Response:
        if not site.log_in(request, token.strip()):
            return login_form(request, next, status=401, problem="This is not a token of this server.")
        return RedirectResponse(local_path(next), 303)

    @router.post("/logout")
    def do_logout(request: Request) -> Response:
        request.session.clear()
        return RedirectResponse("/login", 303)

    return router
