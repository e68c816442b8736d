"""`ringroad-lab documents`."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringroad_lab.cli.list_scenarios import print_table
from ringroad_lab.cli.report import write_file
from ringroad_lab.cli.run_verbs import Quiet
from ringroad_lab.cli.scenario_options import AsJson
from ringroad_lab.errors import ReportError, RunStoppedError, ScenarioError
from ringroad_lab.grouping import grouped
from ringroad_lab.report.plain_text import printable
from ringroad_lab.report.quantity import duration
from ringroad_lab.scenario.near_miss import suggest

if TYPE_CHECKING:
    from ringroad_lab.documents.catalogue import Document, Row
    from ringroad_lab.documents.results import RowResult


def _complete_document(incomplete: str) -> list[str]:
    from ringroad_lab.documents.catalogue import documents

    return [name for name in documents() if name.startswith(incomplete)]


def documents(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Document whose rows to run.", autocompletion=_complete_document, show_default=False),
    ] = None,
    row: Annotated[
        list[str] | None, typer.Option("--row", metavar="ID", help="Run only this row of the document, anew; can be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands; run nothing.")] = False,
    results: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep the results in this file, beside those of other rows (JSON). Rows that it has from this machine, "
            "with this version of Ringroad, are not run again: a run that was stopped continues.",
        ),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the page of all documents and results into this file (Markdown).")
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Repeat the experiments of the documents that Ringroad began with: list them, or run the rows of one.

    Rows with one command run it once. Ctrl-C stops; the results of commands that ended are kept.

    A row that fails is reported, and the others run; the status is 1 then. Runs of scenarios go into the result store.
    """
    # Imported here: other verbs do not read the documents.
    from ringroad_lab.documents.catalogue import documents as read_documents
    from ringroad_lab.documents.page import render_page
    from ringroad_lab.documents.results import read_results

    known = read_documents()
    if name is None and (row or dry_run):
        raise ScenarioError("name the document whose rows you mean")
    chosen = _chosen(known, name, row or []) if name else []
    if dry_run:
        _print_commands(chosen, as_json=as_json)
        return
    if name is None and page is None:
        _print_list(known, as_json=as_json)
        return
    for file in filter(None, (results, page)):
        if file.is_dir() or not file.absolute().parent.is_dir():
            raise ReportError(f"cannot write {file}: name a file in an existing folder")
    kept = read_results(results)
    runnable = [each for each in chosen if each.command]
    outcomes = _run(name, runnable, results, is_anew=bool(row), is_quiet=quiet, as_json=as_json) if name else []
    for outcome in outcomes:
        kept = kept.with_row(outcome)
    if page is not None:
        write_file(render_page(known, kept), page)
    if any(outcome.failure for outcome in outcomes):
        raise typer.Exit(1)


def _chosen(known: Mapping[str, Document], name: str, ids: list[str]) -> list[Row]:
    if name not in known:
        raise ScenarioError(f"there is no document {name!r}{suggest(name, known)}")
    rows = {row.id: row for row in known[name].rows}
    for each in ids:
        if each not in rows:
            raise ScenarioError(f"document {name} has no row {each!r}{suggest(each, rows)}")
        if rows[each].command is None:
            raise ScenarioError(f"row {each} of {name} has no command: {rows[each].reason}")
    return [row for row in rows.values() if not ids or row.id in ids]


def _print_list(known: Mapping[str, Document], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({name: document.model_dump(mode="json") for name, document in known.items()}, indent=2))
        return
    print_table(
        [
            {"document": name, "row": row.id, "subject": row.title, "command": row.command or f"none: {row.reason}"}
            for name, document in known.items()
            for row in document.rows
        ]
    )


def _print_commands(rows: list[Row], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([{"row": row.id, "command": row.command, "reason": row.reason} for row in rows], indent=2))
        return
    for row in rows:
        print(row.command or f"# {row.id} has no command: {row.reason}")


def _run(name: str, rows: list[Row], file: Path | None, *, is_anew: bool, is_quiet: bool, as_json: bool) -> list[RowResult]:
    """Run the commands of rows one after the other, and return the rows' results.

    The file has the results of a command as soon as it ends. Unless `is_anew`, rows are left out that the file has from here.
    """
    from ringroad_lab.documents.carry_out import RowRunner
    from ringroad_lab.documents.results import read_results, write_results
    from ringroad_lab.host.local import LocalHost

    def show(text: str) -> None:
        if not is_quiet:
            print(text, file=sys.stderr, flush=True)

    kept = read_results(file)
    last = {row.id: result for row in rows if (result := kept.of(name, row.id, row.command or ""))}
    host = LocalHost()
    try:
        runner = RowRunner(host, show)
        outcomes = {} if is_anew else {row: result for row, result in last.items() if runner.is_from_here(result)}
        commands = grouped((row for row in rows if row.id not in outcomes), lambda row: row.command)
        for text in _outlook(name, len(rows), outcomes.values(), [last.get(same[0].id) for same in commands.values()]):
            show(text)
        for number, (command, same) in enumerate(commands.items(), 1):
            before = last.get(same[0].id)
            took = f", took {duration(before.conditions.took_s, decimals=0)} last time" if before else ""
            show(f"{name} {', '.join(row.id for row in same)} ({number} of {len(commands)}{took}): {command}")
            found = runner.run(name, same)
            outcomes |= {outcome.row: outcome for outcome in found}
            if file is not None:
                # Read again: another row may have ended meanwhile.
                kept = read_results(file)
                for outcome in found:
                    kept = kept.with_row(outcome)
                write_results(kept, file)
            for row, outcome in zip(same, found, strict=True):
                _show_outcome(name, row, outcome, as_json=as_json)
    except RunStoppedError as error:
        rest = "run the same command again to continue" if file else "without --results, nothing of it is kept"
        raise RunStoppedError(f"{error}; {rest}") from error
    finally:
        host.close()
    ended = [outcomes[row.id] for row in rows]
    if as_json:
        print(json.dumps([outcome.model_dump(mode="json") for outcome in ended], indent=2))
    return ended


def _outlook(name: str, count: int, done: Collection[RowResult], last: Sequence[RowResult | None]) -> Iterator[str]:
    """Yield what is done already, and how long the rest took last time, a line each."""
    if done:
        version = next(iter(done)).conditions.version
        yield (
            f"{name}: {len(done)} of {count} rows are done, with Ringroad {version} on this machine; --row ID runs one anew, and another"
            " file for --results all"
        )
    known_s = [each.conditions.took_s for each in last if each]
    if known_s:
        yield f"{name}: commands to run: {len(last)}; {len(known_s)} of them took {duration(sum(known_s), decimals=0)} last time"


def _show_outcome(name: str, row: Row, outcome: RowResult, *, as_json: bool) -> None:
    from ringroad_lab.documents.page import described, shown

    if outcome.failure:
        print(f"ringroad-lab: {name} {row.id}: {printable(outcome.failure)}", file=sys.stderr)
    elif not as_json:
        print_table(
            [
                {"figure": figure.label, "document": figure.theirs, "here": shown(figure, outcome.figures.get(figure.label))}
                for figure in row.figures
                if figure.at
            ]
        )
        print(f"{name} {row.id}: {printable(described(outcome.conditions))}", flush=True)
