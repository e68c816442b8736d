"""The page of beds, and its JSON form."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from ringroad_lab.fleet.bed_overview import LOOK_BACK_S, overview
from ringroad_lab.web.site import Site


def bed_pages(site: Site) -> APIRouter:
    """Make the routes."""
    router = APIRouter()

    @router.get("/beds", include_in_schema=False)
    def show_beds(request: Request) -> Response:
        visitor = site.reader(request)
        now = site.settings.clock()
        found = overview(site.store, site.settings.beds, now)
        return site.page(request, "beds.html.j2", visitor, found=found, now=now, days=round(LOOK_BACK_S / 86400))

    @router.get("/api/beds")
    def list_beds(request: Request) -> dict[str, Any]:
        """Return the beds, the requests that wait for them, and the latest occupancies."""
        site.api_reader(request)
        return overview(site.store, site.settings.beds, site.settings.clock()).as_json()

    return router
