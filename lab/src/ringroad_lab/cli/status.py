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
"""The comparison is inconclusive, and --fail-on-inconclusive is given."""

STEP_FAILED = StepFailedError.exit_status
"""A test step did not do what the scenario expects."""
NOT_INSTALLED = BuildError.exit_status
"""The build to measure is not available, or does not run here."""

MEANINGS = {
    0: "All went well.",
    1: "Something failed; see the message.",
    2: "A scenario or an argument is invalid.",
    3: "A program is missing; the message names its package.",
    INVALID: "A measurement is invalid.",
    REGRESSION: "The comparison shows a regression; this goes before other problems.",
    INCONCLUSIVE: "The comparison is inconclusive (--fail-on-inconclusive).",
    NOT_INSTALLED: "The build to measure is not available, or does not run here.",
    STEP_FAILED: "A test step did not do what the scenario expects; there is no regression.",
    BedError.exit_status: "The bed is not available, or failed its calibration or clean-up; another bed may work.",
    130: "The user stopped the program.",
}

FailOnInconclusive = Annotated[
    bool, typer.Option("--fail-on-inconclusive", help=f"Exit with status {INCONCLUSIVE} if the comparison is inconclusive.")
]


JunitFile = Annotated[
    Path | None,
    typer.Option(
        "--junit",
        metavar="FILE",
        help="Write JUnit XML into this file: a test case for each headline metric. A regression is a failure, an invalid metric is an "
        "error, an inconclusive metric is skipped, or is a failure with --fail-on-inconclusive.",
    ),
]


def of_verdicts(counts: dict[Verdict, int], *, fails_on_regression: bool, fails_on_inconclusive: bool) -> int:
    """Return the exit status of a comparison; `counts` is the number of headline metrics of each verdict."""
    if fails_on_regression and counts.get(Verdict.REGRESSION):
        return REGRESSION
    return INCONCLUSIVE if fails_on_inconclusive and counts.get(Verdict.INCONCLUSIVE) else 0
