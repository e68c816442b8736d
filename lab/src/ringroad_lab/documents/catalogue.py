"""The documents, their experiments, and the command that repeats each: the files `catalogue/*.toml`."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from ringroad_lab.documents.selection import Selection
from ringroad_lab.text_types import Name
from ringroad_lab.trial import Frozen

_FOLDER = Path(__file__).parent / "catalogue"

Text = Annotated[str, AfterValidator(lambda text: " ".join(text.split()))]
"""A text whose lines are joined."""
Unit = Literal["Mpps", "kframes/s", "Gbit/s", "Mbit/s", "%", "ns", "µs", "cycles", "instructions", "processors", "MB", "ratio"]
SCALES: Mapping[Unit, float] = {"Mpps": 1e-6, "kframes/s": 1e-3, "Gbit/s": 1e-9, "Mbit/s": 1e-6, "µs": 1e-3, "MB": 1e-6}
"""Factors from the units of programs (frames/s, bit/s, ns, bytes) to the page's; 1 if absent."""


class DocumentedFigure(Frozen):
    """A figure that a document states, or a figure of ours to read beside it."""

    label: str
    theirs: str = ""
    """The document's figure with its unit, as printed; `(computed: ...)` follows if printed ones give it. Empty: it states none."""
    unit: Unit | None = None
    at: Selection | None = None
    """Where the figure is in the JSON of the row's command. None: no program of ours has a figure of this kind."""
    over: Selection | None = None
    """Where the figure is that `at` is divided by, for a ratio within one run."""
    is_headline: bool = False
    """Whether the page's first table has it."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.at is None) != (self.unit is None) or (self.over is not None and self.unit != "ratio"):
            raise ValueError(f"{self.label}: `at` needs a unit, and `over` the unit `ratio`")
        return self


class Row(Frozen):
    """A table, figure or measured sentence of a document."""

    id: Name
    title: Text
    """Its number in the document, and its subject."""
    what: Text
    """What it measures, under which conditions."""
    command: Text | None = None
    """Command that repeats it, as a user types it. The programs get `--json` in addition."""
    reason: Text | None = None
    """Why there is no command."""
    differs: Text = ""
    """What differs from the document, and why."""
    figures: tuple[DocumentedFigure, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.command is None) == (self.reason is None):
            raise ValueError(f"{self.id}: needs a command, or the reason why there is none")
        if any(figure.at for figure in self.figures) != (self.command is not None):
            raise ValueError(f"{self.id}: a command needs figures with `at`, and these a command")
        return self

    @property
    def words(self) -> list[str]:
        """The command's words."""
        return shlex.split(self.command or "")


class Feature(Frozen):
    """A system, interface or feature that a document describes without a figure."""

    place: str
    what: Text
    here: Text
    """What Ringroad has in its place, and the page that describes it; or why it has none."""


class Document(Frozen):
    """A document."""

    title: Text
    authors: str
    year: Annotated[int, Field(ge=1900, le=2100)]
    kind: Text
    machine: Text
    notes: tuple[Text, ...] = ()
    """What its figures mean, and what its text leaves open."""
    rows: tuple[Row, ...]
    features: tuple[Feature, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        ids = [row.id for row in self.rows]
        labels = [(row.id, figure.label) for row in self.rows for figure in row.figures]
        if len(set(ids)) < len(ids) or len(set(labels)) < len(labels):
            raise ValueError("two rows have one id, or two figures of a row one label")
        return self


@cache
def documents() -> Mapping[str, Document]:
    """Return the documents by name, the oldest first."""
    found = {path.stem: Document.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))) for path in _FOLDER.glob("*.toml")}
    return dict(sorted(found.items(), key=lambda item: (item[1].year, item[0])))
