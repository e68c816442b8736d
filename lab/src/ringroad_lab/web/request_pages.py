"""Pages of requests, and their JSON form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path, Query, Request
from fastapi.responses import RedirectResponse, Response

from ringroad_lab.errors import StoreError, StoreFailedError
from ringroad_lab.fleet.allotment import obstacle
from ringroad_lab.fleet.bed_leases import states_in
from ringroad_lab.fleet.outbox import Outbox
from ringroad_lab.report.plain_text import printable_lines
from ringroad_lab.request import table as requested
from ringroad_lab.request.model import UNDER_WAY, RequestState
from ringroad_lab.store.models import Run
from ringroad_lab.web.audit import USER_PREFIX
from ringroad_lab.web.request_query import PAGE_REQUESTS, RequestQuery
from ringroad_lab.web.site import Site

_SHOWN_PAYLOAD_BYTES = 64 * 1024
RequestId = Annotated[int, Path(ge=1, lt=2**31)]


def request_pages(site: Site) -> APIRouter:
    """Make the routes."""
    router = APIRouter()
    requests, outbox = site.requests, Outbox(site.store, clock=site.settings.clock)

    def existing(request_id: int) -> requested.Request:
        try:
            return requests.get(request_id)
        except StoreFailedError:
            raise
        except StoreError as error:
            raise HTTPException(404, "There is no such request") from error

    @router.get("/requests", include_in_schema=False)
    def show_requests(request: Request, query: Annotated[RequestQuery, Query()]) -> Response:
        visitor = site.reader(request)
        total = requests.count(query.which)
        return site.page(
            request,
            "requests.html.j2",
            visitor,
            query=query,
            states=list(RequestState),
            requests=requests.find(query.which, limit=PAGE_REQUESTS, offset=query.offset),
            total=total,
            pages=max(1, -(-total // PAGE_REQUESTS)),
            counts=requests.source_counts(),
            undelivered=outbox.counts(),
            refused=site.refused,
        )

    @router.get("/requests/{request_id}", include_in_schema=False)
    def show_request(request: Request, request_id: RequestId) -> Response:
        visitor = site.reader(request)
        found = existing(request_id)
        payload = found.payload
        with site.store.reading() as database:
            has_run = found.run_id is not None and database.get(Run, found.run_id) is not None
            waits = ""
            if found.state is RequestState.NEW and site.settings.beds:
                states = states_in(database, site.settings.beds, site.settings.clock())
                waits = obstacle(site.settings.beds, states, (found.bed_class, found.scenario))
        return site.page(
            request,
            "request.html.j2",
            visitor,
            one=found,
            changes=requests.changes(request_id),
            notifications=outbox.of_request(request_id),
            payload=printable_lines(payload[:_SHOWN_PAYLOAD_BYTES].decode(errors="replace")),
            payload_bytes=len(payload),
            is_whole=len(payload) <= _SHOWN_PAYLOAD_BYTES,
            has_run=has_run,
            waits=waits,
            may_cancel=found.state in (RequestState.NEW, *UNDER_WAY),
            may_retry=found.may_be_retried,
        )

    def changing(act: Callable[[int, str], object]) -> Callable[[Request, RequestId], Response]:
        def change(request: Request, request_id: RequestId) -> Response:
            visitor = site.writer(request)
            existing(request_id)
            try:
                act(request_id, f"{USER_PREFIX}{visitor.user}")
            except StoreFailedError:
                raise
            except StoreError as error:
                raise HTTPException(409, str(error)) from error
            return RedirectResponse(f"/requests/{request_id}", 303)

        return change

    for name, act in (("cancel", requests.cancel), ("retry", requests.retry), ("renotify", outbox.send_again)):
        router.post(f"/requests/{{request_id}}/{name}", include_in_schema=False)(changing(act))

    @router.get("/api/requests")
    def list_requests(request: Request, query: Annotated[RequestQuery, Query()]) -> dict[str, Any]:
        """Return requests, newest first, and the number of messages by source and outcome."""
        site.api_reader(request)
        found = requests.find(query.which, limit=PAGE_REQUESTS, offset=query.offset)
        return {
            "total": requests.count(query.which),
            "page": query.page,
            "requests": [each.as_json() for each in found],
            "messages": [each.values() for each in requests.source_counts()],
            "undelivered": [asdict(each) for each in outbox.counts()],
            "refused_since_start": dict(site.refused),
        }

    @router.get("/api/requests/{request_id}")
    def one_request(request: Request, request_id: RequestId) -> dict[str, Any]:
        """Return a request with its history and its notifications."""
        site.api_reader(request)
        changes = [each.as_json() for each in requests.changes(request_id)]
        return existing(request_id).as_json() | {
            "changes": changes,
            "notifications": [each.as_json() for each in outbox.of_request(request_id)],
        }

    @router.get("/api/requests/{request_id}/payload")
    def payload(request: Request, request_id: RequestId) -> Response:
        """Return the message that made a request, as received."""
        site.api_reader(request)
        found = existing(request_id)
        # Untrusted content: browsers must not display it.
        headers = {"Content-Disposition": f'attachment; filename="request-{request_id}"'}
        return Response(found.payload, media_type="application/octet-stream", headers=headers)

    return router
