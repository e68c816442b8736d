"""Options of all verbs that read results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringroad_lab.errors import StoreError
from ringroad_lab.record import RunRecord
from ringroad_lab.store.exchange import read_record_file

if TYPE_CHECKING:
    from ringroad_lab.comparison import RunComparison
    from ringroad_lab.store.result_store import ResultStore

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH|URL",
        envvar="RINGROAD_LAB_STORE",
        help="File or URL of the result store.",
        show_default="your own",
    ),
]
STORED_RUN_HELP = "Id of a run or the beginning of an id, a baseline, latest or last-stable."
RUN_HELP = "Id of a run or the beginning of an id, a baseline, latest, last-stable, or a file FILE.json."


def open_store(store: str | None) -> ResultStore:
    """Open the result store. Verbs that need none start without the modules of databases."""
    from ringroad_lab.store.result_store import ResultStore

    return ResultStore(store)


def is_file(name: str) -> bool:
    """Return whether the name of a run is a file name."""
    return name.endswith(".json")


def keep_comparison(store: str | None, baseline: RunRecord, candidate: RunRecord, comparison: RunComparison) -> None:
    """Store the comparison of two stored runs, or of two devices of one run."""
    with open_store(store) as results:
        results.keep_comparison(baseline.run_id, candidate.run_id, comparison)


def load_run(store: str | None, name: str) -> RunRecord:
    """Return a run that the command line names.

    Raises:
        StoreError: no run or several runs match.
    """
    if is_file(name):
        records = read_record_file(Path(name))
        if len(records) != 1:
            raise StoreError(f"{name} has {len(records)} runs: import it, and name one of them")
        return records[0]
    # Imported here, as in all verbs of results: databases, statistics and charts take a second to import; other verbs must not wait.

    with open_store(store) as results:
        return results.get_run(results.resolve(name))
