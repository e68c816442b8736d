"""Hooks: build systems send messages about builds; a message is answered after its result is stored."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from ringroad_lab.fleet.intake import receive
from ringroad_lab.fleet.requests import MessageOutcome
from ringroad_lab.request.message import Message
from ringroad_lab.web.http_guard import HOOKS_PATH
from ringroad_lab.web.site import Site


def hooks(site: Site) -> APIRouter:
    """Make the route."""
    router = APIRouter(prefix=HOOKS_PATH.removesuffix("/"))

    @router.post("/{source}")
    async def hook(request: Request, source: str) -> Response:
        """Receive a message of a build system, with the signature of that system.

        202: the message made requests, or no rule matches. 200: duplicate. 400: invalid JSON. 401: missing or wrong signature.
        413: the message is too long. 429: the message is invalid, and too many others were invalid in this hour.
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
    if received.outcome is MessageOutcome.DEAD_NOT_KEPT:
        status = 429
    elif not received.is_json:
        status = 400
    else:
        status = 200 if received.outcome is MessageOutcome.DUPLICATE else 202
    return JSONResponse(
        {
            "outcome": received.outcome,
            "requests": [{"id": each.id, "state": each.state, "is_new": each.is_new} for each in received.added],
            "problem": received.problem,
        },
        status,
    )
