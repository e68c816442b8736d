"""`ringroad-lab report`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from ringroad_lab.cli.scenario_options import AsJson
from ringroad_lab.cli.store_options import RUN_HELP, StoreOption, load_run
from ringroad_lab.errors import PluginError, ReportError, ScenarioError
from ringroad_lab.record import RunRecord
from ringroad_lab.report.interface import REPORTERS, Reporter
from ringroad_lab.report.rates import Rates
from ringroad_lab.scenario.near_miss import suggest
from ringroad_lab.whole_file import write_whole

STANDARD_OUTPUT = Path("-")
RatesOption = Annotated[
    Rates,
    typer.Option("--rates", help="Rates in frames/s of one direction, or in Mbit/s of both together at layer 1, with preamble and gap."),
]


def report(
    run: Annotated[str, typer.Argument(help=RUN_HELP)] = "latest",
    baseline: Annotated[str | None, typer.Option("--baseline", "-b", metavar="RUN", help="Compare with this run.")] = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="FORM",
            help="Format of the report: `ringroad-lab list reports` shows all.",
            autocompletion=lambda: list(REPORTERS),
        ),
    ] = "html",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="File to write; - is standard output.", show_default="by name")
    ] = None,
    rates: RatesOption = Rates.DIRECTION,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Write the report of a run: HTML that opens from disk, Markdown, JSON (the record), CSV (a row for each metric), JUnit XML."""
    from ringroad_lab.comparison import compare_runs

    form = "json" if as_json else form
    if form not in REPORTERS:
        raise ScenarioError(f"unknown report format '{form}'{suggest(form, REPORTERS)}")
    reporter = REPORTERS[form]()
    if baseline is not None and not reporter.compares:
        raise ReportError(f"{form} shows a single run: leave out --baseline, or see `ringroad-lab compare`")
    if rates is not Rates.DIRECTION and not reporter.compares:
        raise ReportError(f"{form} has the figures as they are in the record: leave out --rates")
    record = rates.of(load_run(store, run))
    comparison = compare_runs(rates.of(load_run(store, baseline)), record) if baseline is not None else None
    if output is None:
        output = Path(report_name(record, reporter.suffix)) if reporter.is_for_files else STANDARD_OUTPUT
    write_report(reporter.render(record, comparison), output)


def reporter_of(file: Path) -> Reporter:
    """Return the reporter for a file's ending; the HTML reporter for unknown endings."""
    kinds = REPORTERS.loadable().values()
    of_ending = (kind for kind in kinds if not isinstance(kind, PluginError) and kind.suffix == file.suffix)
    return next(of_ending, REPORTERS["html"])()


def report_name(record: RunRecord, suffix: str = ".html") -> str:
    """Return the default file name of a report."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", record.name).strip("-")[:80] or "run"
    return f"{name}-{record.run_id[:8]}{suffix}"


def write_report(text: str, output: Path) -> None:
    """Write a file and print its name, or write to standard output.

    Raises:
        ReportError: the file cannot be written.
    """
    if output == STANDARD_OUTPUT:
        sys.stdout.write(text)
    else:
        write_file(text, output)
        typer.echo(output)


def write_file(text: str, output: Path) -> None:
    """Write a file, whole or not at all.

    Raises:
        ReportError: the file cannot be written.
    """
    try:
        if output.exists() and not output.is_file():
            # Write into a device or a pipe, do not replace it; a folder raises an error.
            output.write_text(text, encoding="utf-8", errors="replace")
        else:
            write_whole(output.resolve(), text)
    except OSError as error:
        raise ReportError(f"report {output} cannot be written: {error.strerror}") from error
