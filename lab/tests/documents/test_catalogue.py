"""The catalogue of documents is valid: its commands exist, and its links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from ringroad_lab.cli.main import make_app
from ringroad_lab.cli.scenario_options import resolve_arguments
from ringroad_lab.documents.catalogue import DocumentedFigure, Row, documents
from ringroad_lab.documents.page import render_page
from ringroad_lab.documents.results import read_results

DOCS = Path(__file__).parents[3] / "docs"
BINARIES = Path(os.environ.get("RINGROAD_BIN_DIR", "/nonexistent"))
ROWS = {f"{name} {row.id}": row for name, document in documents().items() for row in document.rows if row.command}
PAGE = render_page(documents(), read_results(None))


def anchor_of(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def commands(program: str) -> list[str]:
    return sorted({row.command for row in ROWS.values() if row.command and row.words[0] == program})


def test_the_five_documents_are_there_with_the_figures_that_they_are_known_for() -> None:
    assert set(documents()) == {"netmap", "sze2-paper", "sze2-thesis", "accelerators", "ovs-testing"}
    known_for = "14.88 Mpps at 900 MHz|60-65 cycles|2.45 Mpps|7.5 Mpps|1.3 -> 3.95|0.78 -> nearly 3|140 Mpps|134 Mpps|94 Gbit/s|90 %"
    cycles = "| 52 cycles|| 109 cycles|| 533 cycles|| 562 cycles|| 1165 cycles"
    for text in [*known_for.split("|"), *cycles.split("||"), "20.83 Mpps", "6.89 Mpps", "12 / 8 Gbit/s", "almost half"]:
        assert text in PAGE, text


@pytest.mark.parametrize("command", commands("ringroad-lab"))
def test_the_laboratory_accepts_the_command(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGROAD_LAB_CONFIG", str(tmp_path))
    words = next(row.words for row in ROWS.values() if row.command == command)
    lab = typer.main.get_command(make_app())
    assert isinstance(lab, TyperGroup)
    given = lab.commands[words[1]].make_context(words[1], [*words[2:], "--json"]).params
    resolved = resolve_arguments(given["scenario"], given["layer"], given["set_"])
    duts = {device.label for scenario in resolved.scenarios for device in scenario.duts}
    named = [each for row in ROWS.values() if row.command == command for figure in row.figures for each in (figure.at, figure.over)]
    assert {dut for each in named if each for dut in re.findall(r"\[dut=([^\]]+)\]", each)} <= duts


@pytest.mark.skipif(not (BINARIES / "ringroad").exists(), reason="needs Ringroad's programs: $RINGROAD_BIN_DIR")
@pytest.mark.parametrize("command", commands("ringroad"))
def test_ringroad_accepts_the_command(command: str) -> None:
    words = next(row.words for row in ROWS.values() if row.command == command)
    ended = subprocess.run([BINARIES / "ringroad", *words[1:], "--json", "--help"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    # The help is the last word; it must not hide a wrong one before.
    ended = subprocess.run([BINARIES / "ringroad", *words[1:], "--nonsense", "--help"], capture_output=True, text=True, check=False)
    assert ended.returncode == 2


def test_other_programs_are_known() -> None:
    assert {row.words[0] for row in ROWS.values()} <= {"ringroad", "ringroad-lab", "make"}


def test_a_row_needs_a_command_with_figures_or_a_reason() -> None:
    figure = DocumentedFigure(label="a", unit="ns", at="rows.a")
    for wrong in (
        {},
        {"command": "ringroad bench"},
        {"command": "ringroad bench", "reason": "none", "figures": [figure]},
        {"reason": "none", "figures": [figure]},
    ):
        with pytest.raises(ValidationError):
            Row.model_validate({"id": "a", "title": "a", "what": "a", **wrong})


@pytest.mark.parametrize(
    "wrong", [{"at": "rows["}, {"at": "rows..a"}, {"at": "rows.a", "unit": None}, {"over": "rows.b", "unit": "ns"}, {"at": None}]
)
def test_a_figure_needs_a_way_that_can_be_read_and_a_unit(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        DocumentedFigure.model_validate({"label": "a", "unit": "ratio", "at": "rows.a", **wrong})


def test_the_links_of_the_page_lead_somewhere() -> None:
    headings = {}
    for target in sorted(set(re.findall(r"\]\(([^)\s]+)\)", PAGE))):
        name, _, anchor = target.partition("#")
        text = PAGE if not name else (DOCS / name).read_text()
        if name not in headings:
            headings[name] = [anchor_of(title) for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
        assert not anchor or headings[name].count(anchor) == 1, target


def test_the_page_has_every_row_and_is_the_one_in_the_documentation() -> None:
    for document in documents().values():
        for row in document.rows:
            assert f"### {row.title}\n" in PAGE
    assert (DOCS / "documents.md").read_text() == render_page(documents(), read_results(DOCS / "documents.json")), (
        "write it anew: make docs, or ringroad-lab documents --results docs/documents.json --page docs/documents.md"
    )
