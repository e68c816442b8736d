"""Exit statuses of results; each error class has its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ringroad_lab.errors import BedError, BuildError, StepFailedError
from ringroad_lab.statistics.verdict import Verdict

INVALID = 4
"""A measurement is invalid."""
REGRESSION = 5
"""The comparison shows a regression."""
INCONCLUSIVE = 6
"""The comparison is inconclusive, and the user wants to be told."""

STEP_FAILED = StepFailedError.exit_status
"""A test step did not do what the scenario expects."""
NOT_INSTALLED = BuildError.exit_status
"""The build that was to be measured cannot be had, or does not run here."""

MEANINGS = {
    0: "All went well.",
    1: "Something failed; the message tells what.",
    2: "A scenario or an argument is wrong.",
    3: "A program is missing; the message names its package.",
    INVALID: "A measurement is invalid.",
    REGRESSION: "The comparison shows a regression, whatever else is wrong.",
    INCONCLUSIVE: "The comparison is inconclusive (--fail-on-inconclusive).",
    NOT_INSTALLED: "The build that was to be measured cannot be had, or does not run here.",
    STEP_FAILED: "A test step did not do what the scenario expects; there is no regression.",
    BedError.exit_status: "The bed cannot be had, or failed its calibration or clean-up; another may do.",
    130: "The user stopped it.",
}

FailOnInconclusive = Annotated[
    bool, typer.Option("--fail-on-inconclusive", help=f"End with status {INCONCLUSIVE} where the comparison is inconclusive.")
]


JunitFile = Annotated[
    Path | None,
    typer.Option(
        "--junit",
        metavar="FILE",
        help="Write JUnit XML into this file: a test case for each headline metric; a regression is a failure, what is invalid an error, "
        "what is inconclusive is skipped, or a failure with --fail-on-inconclusive.",
    ),
]


def of_verdicts(counts: dict[Verdict, int], *, fails_on_regression: bool, fails_on_inconclusive: bool) -> int:
    """Return the status of a comparison with so many headline metrics of each verdict."""
    if fails_on_regression and counts.get(Verdict.REGRESSION):
        return REGRESSION
    return INCONCLUSIVE if fails_on_inconclusive and counts.get(Verdict.INCONCLUSIVE) else 0
