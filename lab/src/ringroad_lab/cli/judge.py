"""`ringroad-lab judge`: a tester's verdict on a run."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ringroad_lab.cli.scenario_options import AsJson
from ringroad_lab.cli.store_options import STORED_RUN_HELP, StoreOption, open_store
from ringroad_lab.store.queries import TesterVerdict


def judge(
    run: Annotated[str, typer.Argument(help=STORED_RUN_HELP, show_default=False)],
    verdict: Annotated[TesterVerdict, typer.Argument(help="The verdict.", show_default=False)],
    comment: Annotated[str | None, typer.Option(metavar="TEXT", help="Comment; replaces the previous comment.")] = None,
    bug: Annotated[str | None, typer.Option(metavar="LINK", help="Link to a bug; replaces the previous link.")] = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Give a run a tester's verdict; the newest run with `pass` is last-stable."""
    from pydantic import ValidationError

    from ringroad_lab.web.audit import COMMAND_LINE
    from ringroad_lab.web.reviews import Review, change_review, read_review, review_problems

    with open_store(store) as results:
        run_id = results.resolve(run)
        before = read_review(results, run_id)
        try:
            review = Review(
                verdict=verdict,
                comment=before.review.comment if comment is None else comment,
                bug_link=before.review.bug_link if bug is None else bug,
            )
        except ValidationError as error:
            raise typer.BadParameter("; ".join(review_problems(error))) from error
        change_review(results, run_id, review, COMMAND_LINE, before.last_change)
        if as_json:
            typer.echo(json.dumps({"run_id": run_id, **read_review(results, run_id).as_json()}, indent=2))
        else:
            typer.echo(f"{run_id}: {verdict}")
