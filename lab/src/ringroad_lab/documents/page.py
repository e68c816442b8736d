"""Writes docs/documents.md: the documents' figures, the command that repeats each, and our figures."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from ringroad_lab.documents.catalogue import SCALES, Document, DocumentedFigure, Row, Unit
from ringroad_lab.documents.results import Conditions, Results, RowResult
from ringroad_lab.documents.selection import FoundFigure
from ringroad_lab.report.quantity import duration, round_figure, utc_text

_COLUMNS = 120
_NOT_RUN = "not run yet"
_NONE = "\u2013"
_INTRODUCTION = (
    "Ringroad began with five documents. This page has each of their experiments, tables and figures: the command that repeats it, the"
    " document's figures beside ours, and what differs. `ringroad-lab documents` writes the page:",
    """```
ringroad-lab documents                                            # the documents, their rows and commands
ringroad-lab documents netmap --dry-run                           # only the commands of one document
ringroad-lab documents netmap --row figure-7                      # runs the command of a row, and prints its figures
ringroad-lab documents netmap --results FILE --page FILE          # runs all rows of a document, keeps the results, writes this page
```""",
    "Ctrl-C stops, and the same command with `--results` continues: rows that the file has from this machine, with the same version"
    " of Ringroad, are not run again, unless `--row` names them. Rows with one command run it once. The progress begins with the"
    " time that the commands took last time; runs of the laboratory show how long they expect to take.",
    "Run it on a release build, on a machine that does nothing else. The commands of virtual switches and network interfaces need root, and"
    " the Debian packages that `ringroad bench --help` and `ringroad-lab plan` name. `make docs` writes the page anew from the results"
    " in `docs/documents.json`. The programs get `--json` in addition to the words that the page shows.",
    "A figure of the documents is quoted as printed; *computed* ones follow from printed ones by one division. Figures of ours are"
    " medians, in brackets the least and the most of the samples, and hold for the machine and the time below their table. No figure"
    " in memory, of a card in software or of an emulated guest is comparable with one of a real card: in these rows the ratio of"
    " two figures of one run stands beside the document's ratio. Words in italics are what the program itself says against a figure."
    " *Others* are all other programs, the hypervisor, and the kernel where it works outside of the run's programs.",
)


def render_page(documents: Mapping[str, Document], results: Results) -> str:
    """Return the page."""
    blocks = ["# The documents, experiment by experiment", *map(_wrapped, _INTRODUCTION), *_headlines(documents, results)]
    for name, document in documents.items():
        blocks += _document_blocks(name, document, results)
    return "\n\n".join(blocks) + "\n"


def shown(figure: DocumentedFigure, found: FoundFigure | None) -> str:
    """Return a figure of ours as a table has it."""
    if found is None or figure.unit is None:
        return "no valid sample"
    scale = SCALES.get(figure.unit, 1.0)
    text = round_figure(found.value * scale) + _suffix(figure.unit)
    if found.least < found.most:
        text += f" ({round_figure(found.least * scale)} to {round_figure(found.most * scale)})"
    return f"{text}, *{', '.join(found.remarks)}*" if found.remarks else text


def _suffix(unit: Unit) -> str:
    return "" if unit == "ratio" else f" {unit}"


def _headlines(documents: Mapping[str, Document], results: Results) -> Iterator[str]:
    yield "## The figures that each document is known for"
    yield _table(
        ("document", "row", "figure", "theirs", "ours"),
        [
            (name, f"[{row.title}](#{_anchor(row.title)})", figure.label, figure.theirs, _ours(figure, _result(results, name, row)))
            for name, document in documents.items()
            for row in document.rows
            for figure in row.figures
            if figure.is_headline
        ],
    )


def _anchor(title: str) -> str:
    """Return the anchor that forges give a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _document_blocks(name: str, document: Document, results: Results) -> Iterator[str]:
    yield f"## {name}"
    yield _wrapped(f"*{document.title}*, {document.authors}, {document.year}; {document.kind}. Machine: {document.machine}")
    if document.notes:
        yield "\n".join(_wrapped(note, "- ") for note in document.notes)
    for row in document.rows:
        yield from _row_blocks(row, _result(results, name, row))
    if document.features:
        yield f"### What {name} describes without a figure"
        yield _table(("place", "document", "Ringroad"), [(each.place, each.what, each.here) for each in document.features])


def _result(results: Results, document: str, row: Row) -> RowResult | None:
    return results.of(document, row.id, row.command or "")


def _row_blocks(row: Row, result: RowResult | None) -> Iterator[str]:
    yield f"### {row.title}"
    yield _wrapped(row.what)
    if row.command:
        yield f"```\n{row.command}\n```"
    if row.figures:
        yield _table(
            ("figure", "document", "Ringroad"),
            [(figure.label, figure.theirs or _NONE, _ours(figure, result)) for figure in row.figures],
        )
    if result:
        yield _wrapped(_run_of(result))
    if row.reason:
        yield _wrapped(f"Not run here: {row.reason}")
    if row.differs:
        yield _wrapped(row.differs)


def _ours(figure: DocumentedFigure, result: RowResult | None) -> str:
    if figure.at is None:
        return _NONE
    if result is None:
        return _NOT_RUN
    return "failed" if result.failure else shown(figure, result.figures.get(figure.label))


def _run_of(result: RowResult) -> str:
    where = described(result.conditions)
    return f"Failed on {where}: {result.failure}." if result.failure else f"Run on {where}."


def described(conditions: Conditions) -> str:
    """Return where and when a row was run, as a part of a sentence."""
    virtual = "" if conditions.virtualization in ("none", "unknown") else ", virtual"
    day = utc_text(conditions.started_at, "%d %B %Y").lstrip("0")
    return (
        f"{day} in {duration(conditions.took_s, decimals=0)}, Ringroad {conditions.version}, {conditions.processors} processors"
        f" ({conditions.processor}{virtual}), Linux {conditions.kernel}; others had"
        f" {conditions.others_ratio:.0%} of the processors' time"
    )


def _wrapped(text: str, bullet: str = "") -> str:
    if text.startswith("```"):
        return text
    return textwrap.fill(
        text,
        _COLUMNS,
        initial_indent=bullet,
        subsequent_indent=" " * len(bullet),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" if line[0] != "---" else f"|{'|'.join(line)}|" for line in lines)
