"""Results of rows, and the file that keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError

from ringroad_lab.documents.selection import FoundFigure
from ringroad_lab.errors import StoreError, value_problems
from ringroad_lab.trial import Frozen, Moment, Seconds
from ringroad_lab.whole_file import write_whole

# Thousands of rows; a longer file is not ours.
_MOST_BYTES = 16 * 1024 * 1024


class Conditions(Frozen):
    """Where and when a row was run."""

    started_at: Moment
    took_s: Seconds
    version: str
    """Of Ringroad."""
    processor: str
    processors: int
    """Number of the machine's processors."""
    virtualization: str
    kernel: str
    others_ratio: Annotated[float, Field(ge=0, le=1)]
    """Part of all processors' time that others had: other programs, the hypervisor, and the kernel outside of the run's programs."""


class RowResult(Frozen):
    """Outcome of a row's command."""

    document: str
    row: str
    command: str
    """The command that was run: figures of another command are not this row's."""
    conditions: Conditions
    figures: dict[str, FoundFigure] = {}
    """By label."""
    failure: str | None = None


class Results(Frozen):
    """Results of rows; the newest of each."""

    schema_version: Literal[1] = 1
    rows: tuple[RowResult, ...] = ()

    def of(self, document: str, row: str, command: str) -> RowResult | None:
        """Return the result of a row's command; None if the row was not run with this command."""
        return next((each for each in self.rows if (each.document, each.row, each.command) == (document, row, command)), None)

    def with_row(self, result: RowResult) -> Self:
        """Return the results with a new one; a failure does not replace figures of the same command."""
        old = self.of(result.document, result.row, result.command)
        if result.failure is not None and old is not None and old.failure is None:
            return self
        others = [each for each in self.rows if (each.document, each.row) != (result.document, result.row)]
        return self.model_copy(update={"rows": (*others, result)})


def read_results(file: Path | None) -> Results:
    """Read the results of earlier runs; none if there is no file yet.

    Raises:
        StoreError: the file cannot be read, or has other contents.
    """
    if file is None or not file.exists():
        return Results()
    try:
        with file.open("rb") as text:
            return Results.model_validate_json(text.read(_MOST_BYTES))
    except OSError as error:
        raise StoreError(f"results {file} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise StoreError(f"{file} has no results of `ringroad-lab documents`: {value_problems(error)[0]}; name another file") from error


def write_results(results: Results, file: Path) -> None:
    """Write the results, whole or not at all.

    Raises:
        StoreError: the file cannot be written.
    """
    try:
        write_whole(file, results.model_dump_json(indent=2) + "\n")
    except OSError as error:
        raise StoreError(f"results {file} cannot be written: {error.strerror}") from error
