"""`ringroad-lab compare`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringroad_lab.cli import status
from ringroad_lab.cli.report import STANDARD_OUTPUT, RatesOption, report_name, write_file, write_report
from ringroad_lab.cli.scenario_options import AsJson
from ringroad_lab.cli.store_options import RUN_HELP, StoreOption, is_file, keep_comparison, load_run
from ringroad_lab.report.rates import Rates

if TYPE_CHECKING:
    from ringroad_lab.comparison import RunComparison


class Format(StrEnum):
    """Formats of a comparison."""

    MARKDOWN = "markdown"
    JSON = "json"
    HTML = "html"


def compare(
    baseline: Annotated[str, typer.Argument(help=f"{RUN_HELP} With --within: label of a device.", show_default=False)],
    candidate: Annotated[
        str, typer.Argument(help="The candidate: the run or device that is compared with the baseline.", show_default=False)
    ],
    within: Annotated[str | None, typer.Option(metavar="RUN", help="Compare two devices that this run measured in turns.")] = None,
    limit: Annotated[
        float | None,
        typer.Option(
            metavar="RATIO",
            min=0.001,
            max=0.999,
            help='A comparison that could have missed a difference of this size does not report "no difference".',
            show_default="the scenario's difference_limit, 0.03",
        ),
    ] = None,
    form: Annotated[Format, typer.Option("--format", "-f", help="Format of the comparison.")] = Format.MARKDOWN,
    rates: RatesOption = Rates.DIRECTION,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write; - is standard output.", show_default="by name")
    ] = None,
    fail_on_regression: Annotated[bool, typer.Option(help=f"Exit with status {status.REGRESSION} if there is a regression.")] = False,
    fail_on_inconclusive: status.FailOnInconclusive = False,
    junit: status.JunitFile = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Compare two runs, or two devices within one run; each change has its interval, and the smallest change that could be detected.

    The store keeps the verdicts of stored runs: `runs` shows them.
    """
    from ringroad_lab.comparison import compare_labels, compare_runs
    from ringroad_lab.report.html import HtmlReporter
    from ringroad_lab.report.junit import comparison_as_junit
    from ringroad_lab.report.markdown import comparison_blocks

    names = [within, within] if within else [baseline, candidate]
    before, record = (load_run(store, name) for name in names)

    def compared(form: Rates) -> RunComparison:
        if within is None:
            return compare_runs(form.of(before), form.of(record), limit)
        return compare_labels(form.of(record), baseline, candidate, limit)

    comparison = compared(rates)
    if not any(map(is_file, names)) and (within or before.run_id != record.run_id):
        # The store has the rates of all comparisons as the records have them.
        keep_comparison(store, before, record, comparison if rates is Rates.DIRECTION else compared(Rates.DIRECTION))
    if junit:
        write_file(comparison_as_junit(comparison, fails_on_inconclusive=fail_on_inconclusive), junit)
    form = Format.JSON if as_json else form
    if form is Format.HTML:
        write_report(HtmlReporter().render(rates.of(record), comparison), output or Path(report_name(record)))
    elif form is Format.JSON:
        write_report(comparison.model_dump_json(indent=1) + "\n", output or STANDARD_OUTPUT)
    else:
        write_report("\n\n".join(comparison_blocks(comparison)) + "\n", output or STANDARD_OUTPUT)
    exit_status = status.of_verdicts(comparison.counts, fails_on_regression=fail_on_regression, fails_on_inconclusive=fail_on_inconclusive)
    raise typer.Exit(exit_status)
