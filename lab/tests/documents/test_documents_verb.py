"""`ringroad-lab documents`, as a user types it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ringroad_lab.cli.main import make_app
from ringroad_lab.documents import catalogue
from ringroad_lab.documents.carry_out import ProcessorTimes, RowRunner
from ringroad_lab.documents.catalogue import DocumentedFigure, Row, documents
from ringroad_lab.documents.page import render_page
from ringroad_lab.documents.results import Conditions, Results, RowResult, read_results, write_results
from ringroad_lab.documents.selection import FoundFigure
from ringroad_lab.errors import LabError, ReportError, RunStoppedError, ScenarioError, StoreError
from ringroad_lab.host.local import LocalHost

HAS_PROGRAMS = Path(os.environ.get("RINGROAD_BIN_DIR", "/nonexistent"), "ringroad").exists()
NEEDS_PROGRAMS = pytest.mark.skipif(not HAS_PROGRAMS, reason="needs Ringroad's programs: $RINGROAD_BIN_DIR")
ROWS = {row.id: row for row in documents()["netmap"].rows}
CONDITIONS = Conditions(
    started_at=1_795_000_000,
    took_s=75,
    version="0.2.0",
    processor="AMD EPYC",
    processors=2,
    virtualization="kvm",
    kernel="6.18.44",
    others_ratio=0.02,
)
QUICK = Row(
    id="quick",
    title="Frames into a null port",
    what="A thousand frames.",
    command="ringroad gen null:no-rx=1 --no-signature --count 1000",
    figures=(DocumentedFigure(label="rate", theirs="14.88 Mpps", unit="Mpps", at="loads.rate.rate_fps"),),
)


def lab(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(make_app(), ["documents", *arguments])
    if isinstance(result.exception, LabError):
        raise result.exception
    assert result.exit_code == status, result.output
    return result


def result_of(document: str, row: str, **values: object) -> RowResult:
    command = next(each.command for each in documents()[document].rows if each.id == row)
    return RowResult.model_validate({"document": document, "row": row, "command": command, "conditions": CONDITIONS, **values})


def test_without_a_name_it_lists_documents_rows_and_commands() -> None:
    shown = lab().stdout
    assert all(row.command in shown for row in ROWS.values() if row.command)
    assert json.loads(lab("--json").stdout)["netmap"]["year"] == 2012


def test_a_dry_run_prints_commands_and_reasons_and_runs_nothing() -> None:
    shown = lab("netmap", "--dry-run").stdout.splitlines()
    assert ROWS["mechanisms"].command in shown
    assert any(line.startswith("# figure-8-click has no command: ") for line in shown)
    assert lab("netmap", "--dry-run", "--row", "figure-7").stdout == f"{ROWS['figure-7'].command}\n"
    assert json.loads(lab("netmap", "--dry-run", "--row", "figure-7", "--json").stdout)[0]["row"] == "figure-7"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["netmapp"], ScenarioError, "there is no document 'netmapp'; did you mean 'netmap'?"),
        (["netmap", "--row", "figure-77"], ScenarioError, "document netmap has no row 'figure-77'; did you mean 'figure-7'?"),
        (["netmap", "--row", "figure-8-click"], ScenarioError, "row figure-8-click of netmap has no command: Debian"),
        (["--row", "figure-7"], ScenarioError, "name the document"),
        (["--dry-run"], ScenarioError, "name the document"),
        (["netmap", "--page", "/nonexistent/page.md"], ReportError, "cannot write /nonexistent/page.md: name a file in an existing folder"),
    ],
)
def test_wrong_arguments_are_named_before_anything_runs(arguments: list[str], error: type[LabError], message: str) -> None:
    with pytest.raises(error, match=message.replace("?", r"\?")):
        lab(*arguments)


def test_a_file_with_other_contents_is_refused_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    for text in ("{}x", '{"rows": 3}', '{"schema_version": 2}', ""):
        file.write_text(text)
        with pytest.raises(StoreError, match="has no results of `ringroad-lab documents`"):
            lab("--results", str(file), "--page", str(tmp_path / "page.md"))
        assert file.read_text() == text


def test_the_page_shows_figures_with_their_conditions_failures_with_their_reason_and_what_was_not_run(tmp_path: Path) -> None:
    figures = {"one core, 64 B, line rate": FoundFigure(value=206e6, least=2e8, most=21e7, samples=3, remarks=("disturbed",))}
    results = Results().with_row(result_of("netmap", "figure-5", figures=figures))
    results = results.with_row(result_of("netmap", "netsend", failure="ringroad ended with status 1: no trafgen"))
    file, page = tmp_path / "results.json", tmp_path / "page.md"
    write_results(results, file)
    assert read_results(file) == results
    lab("--results", str(file), "--page", str(page))
    text = page.read_text()
    assert "| one core, 64 B, line rate | 14.88 Mpps at 900 MHz | 206.0 Mpps (200.0 to 210.0), *disturbed* |" in text
    assert "| with a signature in each frame | \u2013 | no valid sample |" in text
    assert "Ringroad 0.2.0, 2 processors (AMD EPYC, virtual), Linux 6.18.44;" in text.replace("\n", " ")
    assert "others had 2% of the processors' time." in text.replace("\n", " ")
    assert "no trafgen" in text
    assert "| batch 1 | 2.45 Mpps (408 ns) | not run yet |" in text


def test_results_of_another_command_are_not_shown() -> None:
    figures = {"batch 1": FoundFigure(value=1e6, least=1e6, most=1e6, samples=1)}
    result = result_of("netmap", "figure-7", figures=figures)
    assert "1.000 Mpps" in render_page(documents(), Results().with_row(result))
    other = result.model_copy(update={"command": "ringroad bench --path pipe"})
    assert "1.000 Mpps" not in render_page(documents(), Results().with_row(other))


def test_a_failure_does_not_replace_figures_and_figures_replace_a_failure() -> None:
    good = result_of("netmap", "figure-7", figures={"batch 1": FoundFigure(value=1, least=1, most=1, samples=1)})
    bad = result_of("netmap", "figure-7", failure="no")
    assert Results().with_row(good).with_row(bad).rows == (good,)
    assert Results().with_row(bad).with_row(good).rows == (good,)


@NEEDS_PROGRAMS
def test_a_row_runs_with_the_real_program_once_and_a_row_that_fails_says_why() -> None:
    host = LocalHost()
    shown: list[str] = []
    try:
        runner = RowRunner(host, shown.append)
        result, again = runner.run("netmap", [QUICK, QUICK.model_copy(update={"id": "other"})])
        commands = (
            "ringroad gen null:size=0 --count 1",
            "cat /dev/null",
            'echo \'{"loads": [{"rate": null}]}\'',
            "no-such-program-of-anyone",
        )
        failures = [runner.run("netmap", [QUICK.model_copy(update={"command": command})]) for command in commands]
        assert runner.is_from_here(result)
        elsewhere = result.conditions.model_copy(update={"kernel": "2.6.32"})
        assert not runner.is_from_here(result.model_copy(update={"conditions": elsewhere}))
        assert not runner.is_from_here(result.model_copy(update={"failure": "no"}))
    finally:
        host.close()
    assert result.failure is None
    assert result.figures["rate"].value > 0
    assert again == result.model_copy(update={"row": "other"})
    (wrong,), (silent,), (invalid,), (absent,) = failures
    assert result.conditions.processors == os.cpu_count()
    assert result.conditions.version.count(".") == 2
    assert wrong.failure is not None
    assert wrong.failure.startswith("ringroad ended with status 2: port null:size=0")
    assert silent.failure is not None
    assert silent.failure.startswith("cat printed no result as JSON")
    assert invalid.failure is not None
    assert invalid.failure.startswith("its output has none of the figures: no measurement was valid; others had ")
    assert absent.failure is not None
    assert absent.failure.startswith("no-such-program-of-anyone is not installed")


def test_others_are_what_was_neither_idle_nor_the_runs_own() -> None:
    before = ProcessorTimes(at_s=10, processors=2, busy_s=100, own_s=5)
    after = ProcessorTimes(at_s=20, processors=2, busy_s=113, own_s=14)
    assert after.others_ratio(before) == pytest.approx(4 / 20)
    assert ProcessorTimes(at_s=20, processors=2, busy_s=108, own_s=14).others_ratio(before) == 0
    now = ProcessorTimes.now()
    # A process that ended and was waited for is one's own.
    subprocess.run(["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done"], check=True)
    assert ProcessorTimes.now().own_s > now.own_s
    assert 0 <= ProcessorTimes.now().others_ratio(now) <= 1


@NEEDS_PROGRAMS
def test_ctrl_c_ends_the_row_and_the_verb() -> None:
    host = LocalHost()
    try:
        # In a terminal the command gets the signal, too; this one ends by itself.
        runner = RowRunner(host, lambda text: signal.raise_signal(signal.SIGINT))
        with pytest.raises(RunStoppedError):
            runner.run("netmap", [QUICK.model_copy(update={"command": "sh -c 'echo begun >&2'"})])
    finally:
        host.close()


@NEEDS_PROGRAMS
def test_the_verb_keeps_each_result_runs_the_rows_after_a_failure_and_ends_with_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netmap = documents()["netmap"]
    broken = QUICK.model_copy(update={"id": "broken", "command": "ringroad gen null:size=0 --count 1"})
    shortened = {"netmap": netmap.model_copy(update={"rows": (broken, QUICK)})}
    monkeypatch.setattr(catalogue, "documents", lambda: shortened)
    file, page = tmp_path / "results.json", tmp_path / "page.md"
    ended = lab("netmap", "--results", str(file), "--page", str(page), "--quiet", status=1)
    assert "ringroad-lab: netmap broken: ringroad ended with status 2" in ended.stderr
    assert "14.88 Mpps" in ended.stdout
    kept = read_results(file)
    assert [(each.row, each.failure is None) for each in kept.rows] == [("broken", False), ("quick", True)]
    assert "Run on " in page.read_text()
    lab("netmap", "--row", "quick", "--json", "--quiet")


@NEEDS_PROGRAMS
def test_a_stopped_run_continues_with_the_rows_that_are_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netmap = documents()["netmap"]
    log, begun, results = tmp_path / "log", tmp_path / "begun", tmp_path / "results.json"

    def row(name: str, script: str) -> Row:
        return QUICK.model_copy(update={"id": name, "command": shlex.join(["sh", "-c", f"echo {script[0]} >>{log}; {script[2:]}"])})

    output = 'echo "{\\"loads\\": [{\\"rate\\": {\\"rate_fps\\": 1e6}}]}"'
    # The second stops the first time; the third has the command of the first.
    first, second = row("first", f"1 {output}"), row("second", f"2 test -e {begun} || {{ touch {begun}; kill -INT $PPID; }}; {output}")
    third = first.model_copy(update={"id": "third"})
    shortened = {"netmap": netmap.model_copy(update={"rows": (first, second, third)})}
    monkeypatch.setattr(catalogue, "documents", lambda: shortened)
    with pytest.raises(RunStoppedError, match="stopped by the user; run the same command again to continue"):
        lab("netmap", "--results", str(results))
    assert [each.row for each in read_results(results).rows] == ["first", "third"]
    continued = lab("netmap", "--results", str(results))
    assert "netmap: 2 of 3 rows are done, with Ringroad " in continued.stderr
    assert "netmap second (1 of 1): sh -c " in continued.stderr
    assert {each.row for each in read_results(results).rows} == {"first", "second", "third"}
    assert log.read_text() == "1\n2\n2\n"
    assert len(json.loads(lab("netmap", "--results", str(results), "--json").stdout)) == 3
    assert log.read_text() == "1\n2\n2\n"
    anew = lab("netmap", "--results", str(results), "--row", "second")
    assert "netmap: commands to run: 1; 1 of them took " in anew.stderr
    assert log.read_text() == "1\n2\n2\n2\n"
    lab("netmap")
    assert log.read_text() == "1\n2\n2\n2\n1\n2\n"
