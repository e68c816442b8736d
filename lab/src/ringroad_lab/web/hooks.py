"""Hooks: build systems send messages about builds, and each is answered when what came of it is in the store."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from ringroad_lab.fleet.intake import receive
from ringroad_lab.fleet.request import Message
from ringroad_lab.fleet.requests import Outcome
from ringroad_lab.web.http_guard import HOOKS_PATH
from ringroad_lab.web.site import Site


def hooks(site: Site) -> APIRouter:
    """Make the route."""
    router = APIRouter(prefix=HOOKS_PATH.removesuffix("/"))

    @router.post("/{source}")
    async def hook(request: Request, source: str) -> Response:
        """Take a message of a build system, signed as that does it.

        202: requests were made of it, or no rule matches. 200: it is a duplicate. 400: it is no JSON. 401: its signature is wrong.
        413: it is too long. 429: nothing can be made of it, as of too many others in this hour.
        """
        known = site.settings.hooks.get(source)
        if known is None:
            raise HTTPException(404, "there is no such source")
        body = await request.body()
        if not known.is_signed(request.headers, body):
            site.refused[source] += 1
            raise HTTPException(401, "the signature is missing or wrong")
        message = Message(source, body, site.settings.clock(), known.event(request.headers), known.delivery(request.headers))
        return await run_in_threadpool(_receive, site, message)

    return router


def _receive(site: Site, message: Message) -> Response:
    received = receive(site.requests, site.settings.rules, message)
    if received.outcome is Outcome.DEAD_NOT_KEPT:
        status = 429
    elif not received.is_json:
        status = 400
    else:
        status = 200 if received.outcome is Outcome.DUPLICATE else 202
    return JSONResponse(
        {
            "outcome": received.outcome,
            "requests": [{"id": each.id, "state": each.state, "is_new": each.is_new} for each in received.added],
            "problem": received.problem,
        },
        status,
    )
