"""Verbs of the result store: `runs`, `export`, `import`, `baseline`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ringroad_lab.cli.list_scenarios import print_rows
from ringroad_lab.cli.report import STANDARD_OUTPUT, write_report
from ringroad_lab.cli.scenario_options import AsJson
from ringroad_lab.cli.store_options import STORED_RUN_HELP, StoreOption, open_store
from ringroad_lab.report.quantity import moment
from ringroad_lab.statistics.verdict import Verdict
from ringroad_lab.store.exchange import read_record_file, write_records
from ringroad_lab.store.queries import RunFilter, RunSummary


def runs(
    name: Annotated[str | None, typer.Option(help="Name of the scenario.")] = None,
    dut: Annotated[str | None, typer.Option(help="Label or driver of a device.")] = None,
    version: Annotated[str | None, typer.Option(help="Part of the version of a program, or of a label.")] = None,
    finding: Annotated[Verdict | None, typer.Option(help="Verdict of a comparison with a baseline.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of runs.")] = 20,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """List the runs in the result store, newest first, with the findings of their last comparison."""
    which = RunFilter(name=name, dut=dut, version=version, finding=finding)
    with open_store(store) as results:
        found = results.summaries(which, limit=limit)
        count = results.count(which)
        named: dict[str, list[str]] = {}
        for baseline in results.baselines():
            named.setdefault(baseline.run_id, []).append(baseline.name)
    if as_json:
        typer.echo(json.dumps([summary.as_json() | {"baselines": named.get(summary.run_id, [])} for summary in found], indent=2))
    else:
        titles = ("run", "started", "name", "devices", "state", "measurements", "findings", "verdict", "baseline")
        print_rows(titles, [_row(summary, named.get(summary.run_id, [])) for summary in found])
    if count > len(found):
        typer.echo(f"and {count - len(found)} more: --limit", err=True)


def export_runs(
    run: Annotated[list[str], typer.Argument(help="Runs, each by its id or the beginning of the id, a baseline, latest or last-stable.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write; - is standard output.")] = STANDARD_OUTPUT,
    store: StoreOption = None,
) -> None:
    """Write the records of runs as JSON, which `import` reads."""
    with open_store(store) as results:
        records = [results.get_run(results.resolve(name)) for name in run]
    write_report(write_records(records), output)


def import_runs(
    file: Annotated[list[Path], typer.Argument(help="Files that `export` or `report --format json` wrote.")], store: StoreOption = None
) -> None:
    """Add runs to the result store, all or none; runs that exist already are not changed."""
    records = [record for path in file for record in read_record_file(path)]
    with open_store(store) as results:
        added = results.add_runs(records)
    typer.echo(f"{added} added, {len(records) - added} already exist")


def set_baseline(
    name: Annotated[str, typer.Argument(help="The name: letters, digits, dots, dashes, underscores.")],
    run: Annotated[str, typer.Argument(help=STORED_RUN_HELP)],
    store: StoreOption = None,
) -> None:
    """Give a name to a run; another run with this name loses it."""
    with open_store(store) as results:
        run_id = results.resolve(run)
        results.set_baseline(name, run_id)
    typer.echo(f"{name} is {run_id}")


def list_baselines(store: StoreOption = None, as_json: AsJson = False) -> None:
    """List the baselines."""
    with open_store(store) as results:
        entries = results.baselines()
    if as_json:
        typer.echo(json.dumps([entry.values("id") for entry in entries], indent=2))
    else:
        print_rows(("name", "run", "set"), [(entry.name, entry.run_id, moment(entry.set_at)) for entry in entries])


def _row(summary: RunSummary, baselines: list[str]) -> tuple[str, ...]:
    return (
        summary.run_id[:8],
        moment(summary.started_at),
        summary.name,
        ", ".join(label for label, _ in summary.duts),
        summary.state if summary.is_ended else "not ended",
        ", ".join(f"{count} {status}" for status, count in summary.statuses.items()) or "none",
        _found(summary),
        summary.verdict or "",
        ", ".join(baselines),
    )


def _found(summary: RunSummary) -> str:
    if not summary.comparisons:
        return ""
    last, more = summary.comparisons[0], len(summary.comparisons) - 1
    side = f"{last.dut} " if last.dut else ""
    return f"{side}compared with {last.baseline}: {last.what_came}{f'; and {more} more' if more else ''}"


BASELINE = typer.Typer(help="Name runs that others are compared with.", no_args_is_help=True)
BASELINE.command("set")(set_baseline)
BASELINE.command("list")(list_baselines)
