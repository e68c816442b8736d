"""`ringroad-lab compare`."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringroad_lab.cli import status
from ringroad_lab.cli.report import STANDARD_OUTPUT, RatesOption, report_name, write_file, write_report
from ringroad_lab.cli.scenario_options import AsJson
from ringroad_lab.cli.store_options import RUN_HELP, StoreOption, is_file, keep_comparison, load_run
from ringroad_lab.record import RunRecord
from ringroad_lab.report.rates import Rates
from ringroad_lab.statistics.verdict import by_severity

if TYPE_CHECKING:
    from ringroad_lab.comparison import RunComparison


class Format(StrEnum):
    """Formats of a comparison."""

    MARKDOWN = "markdown"
    JSON = "json"
    HTML = "html"


def compare(
    baseline: Annotated[str, typer.Argument(help=f"{RUN_HELP} With --within: label of a device.", show_default=False)],
    candidates: Annotated[
        list[str],
        typer.Argument(
            metavar="CANDIDATE...",
            help="The run or device that is compared with the baseline; several stand side by side in one report.",
            show_default=False,
        ),
    ],
    within: Annotated[str | None, typer.Option(metavar="RUN", help="Compare devices that this run measured in turns.")] = None,
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
    """Compare runs with a baseline, or devices within one run: each change, its interval, and the smallest change that could be detected.

    The store keeps the verdicts of stored runs: `runs` shows them.
    """
    from ringroad_lab.report.html import HtmlReporter
    from ringroad_lab.report.junit import comparisons_as_junit
    from ringroad_lab.report.markdown import comparison_blocks
    from ringroad_lab.report.side_by_side import as_html, as_markdown

    before = record = load_run(store, within or baseline)
    comparisons = []
    for name in candidates:
        labels = (baseline, name) if within else None
        record = before if within else load_run(store, name)
        comparison = _compared(before, record, labels, rates, limit)
        is_stored = not any(is_file(each) for each in ([within] if within else [baseline, name]))
        if is_stored and (within or before.run_id != record.run_id):
            # The store has the rates of all comparisons as the records have them.
            as_recorded = comparison if rates is Rates.DIRECTION else _compared(before, record, labels, Rates.DIRECTION, limit)
            keep_comparison(store, before, record, as_recorded)
        comparisons.append(comparison)
    if junit:
        write_file(comparisons_as_junit(comparisons, fails_on_inconclusive=fail_on_inconclusive), junit)
    form = Format.JSON if as_json else form
    is_one = len(comparisons) == 1
    if form is Format.HTML:
        name = report_name(record) if is_one else report_name(before, "-compared.html")
        write_report(HtmlReporter().render(rates.of(record), comparison) if is_one else as_html(comparisons), output or Path(name))
    elif form is Format.JSON:
        found = [each.model_dump(mode="json") for each in comparisons]
        write_report(json.dumps(found[0] if is_one else found, indent=1) + "\n", output or STANDARD_OUTPUT)
    else:
        text = "\n\n".join(comparison_blocks(comparison)) + "\n" if is_one else as_markdown(comparisons)
        write_report(text, output or STANDARD_OUTPUT)
    counts = by_severity(row.comparison.verdict for each in comparisons for row in each.rows if row.is_headline)
    raise typer.Exit(status.of_verdicts(counts, fails_on_regression=fail_on_regression, fails_on_inconclusive=fail_on_inconclusive))


def _compared(before: RunRecord, record: RunRecord, labels: tuple[str, str] | None, rates: Rates, limit: float | None) -> RunComparison:
    """Compare two runs, or the devices of one run with these labels."""
    from ringroad_lab.comparison import compare_labels, compare_runs

    if labels is None:
        return compare_runs(rates.of(before), rates.of(record), limit)
    return compare_labels(rates.of(record), *labels, limit)
