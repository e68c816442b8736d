"""The pages of testers' verdicts and of the audit log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, HTTPException, Query, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import Field, ValidationError

from ringroad_lab.trial import Frozen
from ringroad_lab.web.audit import USER_PREFIX, entries
from ringroad_lab.web.result_pages import check_run
from ringroad_lab.web.reviews import Review, ReviewChangedError, RunNotEndedError, change_review, review_problems
from ringroad_lab.web.run_query import MAX_PAGE
from ringroad_lab.web.site import Site

_PAGE_ENTRIES = 100


class ReviewForm(Frozen):
    """The form of a review."""

    last_change: Annotated[int, Field(ge=0, le=2**31)]
    """The last audit log entry of the run when the form was shown."""
    verdict: str = ""
    comment: str = ""
    bug_link: str = ""


def review_pages(site: Site) -> APIRouter:
    """Make the routes."""
    router = APIRouter(include_in_schema=False)

    @router.post("/runs/{run_id}/review")
    def review(request: Request, run_id: str, form: Annotated[ReviewForm, Form()]) -> Response:
        visitor = site.writer(request)
        check_run(site.store, run_id)

        def rejected(status: int, title: str, problems: list[str]) -> Response:
            return site.page(request, "refused.html.j2", visitor, status=status, title=title, problems=problems, form=form, run_id=run_id)

        try:
            wanted = Review.model_validate({"verdict": form.verdict or None, "comment": form.comment, "bug_link": form.bug_link})
            change_review(site.store, run_id, wanted, f"{USER_PREFIX}{visitor.user}", form.last_change, site.settings.clock)
        except ValidationError as error:
            return rejected(400, "Invalid review", review_problems(error))
        except ReviewChangedError:
            problem = "Another user changed the review since you opened the page. Copy your text from below, and open the run again."
            return rejected(409, "The review has changed", [problem])
        except RunNotEndedError as error:
            return rejected(409, "This run cannot be judged yet", [str(error)])
        return RedirectResponse(f"/runs/{run_id}#review", 303)

    @router.get("/audit")
    def show_audit(request: Request, page: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 1) -> Response:
        visitor = site.reader(request)
        with site.store.reading() as database:
            found, total = entries(database, limit=_PAGE_ENTRIES, offset=(page - 1) * _PAGE_ENTRIES)
        pages = max(1, -(-total // _PAGE_ENTRIES))
        if page > pages:
            raise HTTPException(404, "The audit log has no such page")
        return site.page(request, "audit.html.j2", visitor, entries=found, total=total, page=page, pages=pages)

    return router
