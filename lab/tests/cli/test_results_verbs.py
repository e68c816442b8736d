"""Verbs of results, as a user types them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from fabricated_runs import EPOCH, fabricated_run
from ringroad_lab.cli.main import make_app
from ringroad_lab.cli.report import reporter_of
from ringroad_lab.cli.status import INCONCLUSIVE, NOT_INSTALLED, REGRESSION, of_verdicts
from ringroad_lab.errors import LabError, ReportError, StoreError
from ringroad_lab.record import RunRecord
from ringroad_lab.report.interface import REPORTERS
from ringroad_lab.statistics.verdict import Verdict
from ringroad_lab.store.exchange import read_records, write_records
from ringroad_lab.store.result_store import ResultStore


@pytest.mark.parametrize(
    ("counts", "status"),
    [
        ({}, 0),
        ({Verdict.NO_DIFFERENCE: 3, Verdict.IMPROVEMENT: 1}, 0),
        ({Verdict.INCONCLUSIVE: 1}, INCONCLUSIVE),
        ({Verdict.INCONCLUSIVE: 3, Verdict.REGRESSION: 1}, REGRESSION),
    ],
)
def test_a_regression_goes_before_an_inconclusive_metric(counts: dict[Verdict, int], status: int) -> None:
    assert of_verdicts(counts, fails_on_regression=True, fails_on_inconclusive=True) == status


FRAMES = ("64", "512", "1518")
OLD = fabricated_run(run_id="00000000-old", capacities_fps={"ovs": 1e6, "\x1b[31mred": 1e6}, repetitions=12, latency=False)
NEW = fabricated_run(
    run_id="11111111-new", name="../evil name", capacities_fps={"ovs": 0.8e6}, repetitions=12, seed=2, started_at=EPOCH + 1e6, latency=False
)


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with two runs; the current folder is empty."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    path = str(tmp_path / "results.db")
    with ResultStore(path) as results:
        results.add_runs([OLD, NEW])
    monkeypatch.setenv("RINGROAD_LAB_STORE", path)
    return path


def lab(*arguments: str, status: int = 0) -> Result:
    """Run the program with these arguments."""
    result = CliRunner().invoke(make_app(), arguments)
    if isinstance(result.exception, LabError):
        raise result.exception
    assert result.exit_code == status, result.output
    return result


@pytest.mark.usefixtures("location")
def test_runs_are_listed_newest_first_without_control_characters() -> None:
    lines = lab("runs").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["run", "11111111", "00000000"]
    assert "36 ok" in lines[1]
    assert "\x1b" not in "".join(lines)
    assert len(lab("runs", "--dut", "nothing").stdout.splitlines()) == 1
    assert "and 1 more" in lab("runs", "--limit", "1").stderr


@pytest.mark.usefixtures("location")
def test_a_report_is_written_to_a_file_with_its_default_name() -> None:
    assert lab("report").stdout.strip() == "evil-name-11111111.html"
    assert [path.name for path in Path.cwd().iterdir()] == ["evil-name-11111111.html"]
    assert "<!doctype html>" in Path("evil-name-11111111.html").read_text()


@pytest.mark.usefixtures("location")
def test_a_report_has_the_comparison_with_a_baseline() -> None:
    lab("baseline", "set", "release", "0000")
    assert "release" in lab("baseline", "list").stdout
    text = lab("report", "latest", "--baseline", "release", "--format", "markdown").stdout
    assert "3 regressions" in text
    with pytest.raises(ReportError, match="leave out --baseline"):
        lab("report", "--baseline", "release", "--format", "csv")
    text = lab("report", "latest", "--baseline", "release", "--format", "markdown", "--rates", "sum-l1").stdout
    assert "Throughput sum L1, 64 bytes, P2P" in text
    with pytest.raises(ReportError, match="json has the figures as they are in the record: leave out --rates"):
        lab("report", "--format", "json", "--rates", "sum-l1")
    with pytest.raises(StoreError, match="no run or baseline 'nothing'"):
        lab("report", "--baseline", "nothing")


@pytest.mark.usefixtures("location")
def test_a_report_can_be_the_record_or_csv() -> None:
    assert read_records(lab("report", "1111", "--json").stdout, "stdout") == (NEW,)
    assert len(lab("report", "1111", "--format", "csv").stdout.splitlines()) == 1 + 2 * len(NEW.measurements)


@pytest.mark.usefixtures("location")
def test_a_report_that_cannot_be_written_leaves_nothing() -> None:
    Path("folder.html").mkdir()
    with pytest.raises(ReportError, match="cannot be written"):
        lab("report", "--output", "folder.html")
    with pytest.raises(ReportError, match="No such file"):
        lab("report", "--output", "nowhere/report.html")
    assert [path.name for path in Path.cwd().iterdir()] == ["folder.html"]


@pytest.mark.usefixtures("location")
def test_a_regression_can_set_the_exit_status() -> None:
    compared = lab("compare", "0000", "1111")
    assert "**regression**" in compared.stdout
    lab("compare", "0000", "1111", "--fail-on-regression", status=REGRESSION)
    lab("compare", "1111", "0000", "--fail-on-regression")
    lab("compare", "0000", "1111", "--fail-on-inconclusive")
    # A comparison of a run with itself could have missed more than 0.1 %.
    lab("compare", "0000", "0000", "--limit", "0.001", "--fail-on-inconclusive", status=INCONCLUSIVE)
    lab("compare", "0000", "0000", "--limit", "0.001", "--fail-on-regression")
    content = json.loads(lab("compare", "0000", "1111", "--json").stdout)
    assert content["verdict"] == "regression"


def test_several_candidates_stand_beside_one_baseline(location: str) -> None:
    third = fabricated_run(run_id="22222222-third", capacities_fps={"ovs": 1.2e6}, repetitions=12, seed=3, latency=False)
    with ResultStore(location) as store:
        store.add_runs([third])
    lab("compare", "0000", "1111", "2222", "--fail-on-regression", "--junit", "cases.xml", status=REGRESSION)
    text = lab("compare", "0000", "1111", "2222").stdout
    head = next(line for line in text.splitlines() if "Baseline P2P" in line)
    assert [cell.strip()[-9:] for cell in head.strip("|").split("|")][-3:] == ["00000000)", "11111111)", "22222222)"]
    line = next(line for line in text.splitlines() if line.startswith("| ovs | Throughput, 64 bytes, P2P |"))
    lower, higher = line.strip("| ").split(" | ")[-2:]
    assert re.fullmatch(r"\S+ kframes/s, \S+ %, regression", lower)
    assert re.fullmatch(r"\S+ Mframes/s, \+\S+ %, improvement", higher)
    assert text.count("compared with the baseline") == 2
    assert [each["verdict"] for each in json.loads(lab("compare", "0000", "1111", "2222", "--json").stdout)] == [
        "regression",
        "improvement",
    ]
    assert len(ElementTree.parse("cases.xml").findall("testsuite")) == 2
    lab("compare", "0000", "1111", "2222", "--format", "html")
    page = Path("P2P_FABRICATED-00000000-compared.html").read_text()
    assert page.count("<h2>") == 3
    assert "../evil name (11111111)" in page
    with ResultStore(location) as store:
        assert [len(store.comparisons(run.run_id)) for run in (NEW, third)] == [1, 1]


@pytest.mark.usefixtures("location")
def test_several_devices_of_one_run_stand_beside_another() -> None:
    three = fabricated_run(capacities_fps={"a": 1e6, "b": 1e6, "<b>": 1e6}, repetitions=12, latency=False)
    Path("three.json").write_text(three.model_dump_json())
    text = lab("compare", "a", "b", "<b>", "--within", "three.json").stdout
    assert "| Device | Measured | Baseline a | b | \\<b\\> |" in text
    assert "<b>" not in lab("compare", "a", "b", "<b>", "--within", "three.json", "--format", "html", "--output", "-").stdout


def test_a_comparison_has_rates_at_layer_1_and_the_store_those_of_the_records(location: str) -> None:
    lab("compare", "0000", "1111")
    with ResultStore(location) as store:
        (kept,) = store.comparisons(NEW.run_id)
    plain = lab("compare", "0000", "1111").stdout
    at_layer_1 = lab("compare", "0000", "1111", "--rates", "sum-l1").stdout
    assert "Throughput, 64 bytes, P2P" in plain
    assert "Throughput sum L1, 64 bytes, P2P" in at_layer_1
    # The changes and verdicts are the same.
    assert [line.split(" | ")[4:] for line in plain.splitlines()] == [line.split(" | ")[4:] for line in at_layer_1.splitlines()]
    lab("compare", "0000", "1111", "--rates", "sum-l1", "--format", "html", "--output", "at-layer-1.html")
    assert "Throughput sum L1, Mbit/s" in Path("at-layer-1.html").read_text()
    with ResultStore(location) as store:
        (again,) = store.comparisons(NEW.run_id)
    assert again.findings == kept.findings


def test_a_run_supersedes_only_a_run_of_its_scenario(location: str) -> None:
    old = fabricated_run(run_id="33333333-old", name="RINGROAD_MEMIF")
    with ResultStore(location) as store:
        store.add_run(old)
    # It need not measure: the build is not there.
    nowhere = ("--set", "dut.ringroad.build.prefix=/nowhere", "--quiet")
    lab("run", "RINGROAD_MEMIF", *nowhere, "--supersedes", "3333", status=NOT_INSTALLED)
    with ResultStore(location) as store:
        assert store.get_run(store.resolve("latest")).supersedes == old.run_id
    with pytest.raises(StoreError, match="run 00000000-old measured P2P_FABRICATED: a run of BRIDGE_VETH cannot supersede it"):
        lab("run", "BRIDGE_VETH", "--supersedes", "0000")
    with pytest.raises(StoreError, match="no run or baseline 'nothing'"):
        lab("run", "BRIDGE_VETH", "--supersedes", "nothing")
    assert len(json.loads(lab("runs", "--json").stdout)) == 4


@pytest.mark.usefixtures("location")
def test_a_verdict_makes_a_run_last_stable_and_keeps_its_comment() -> None:
    with pytest.raises(StoreError, match="no finished run"):
        lab("compare", "last-stable", "latest")
    assert (
        lab("judge", "0000", "needs rerun", "--comment", "noisy", "--bug", "https://bugs.example/1").stdout
        == f"{OLD.run_id}: needs rerun\n"
    )
    judged = json.loads(lab("judge", "0000", "pass", "--json").stdout)
    assert judged.pop("changed_at") > EPOCH
    assert judged == {
        "run_id": OLD.run_id,
        "verdict": "pass",
        "comment": "noisy",
        "bug_link": "https://bugs.example/1",
        "tester": "command line",
    }
    assert "**regression**" in lab("compare", "last-stable", "latest").stdout
    assert json.loads(lab("judge", "0000", "pass", "--bug", "", "--json").stdout)["bug_link"] == ""


@pytest.mark.usefixtures("location")
def test_an_invalid_verdict_is_refused_without_a_change() -> None:
    assert "'needs rerun'" in lab("judge", "0000", "superb", status=2).output
    assert "bug_link: a bug link begins with" in lab("judge", "0000", "pass", "--bug", "javascript:x", status=2).output
    with pytest.raises(StoreError, match="no run"):
        lab("judge", "9999", "pass")
    with pytest.raises(StoreError, match="no finished run"):
        lab("report", "last-stable")


@pytest.mark.usefixtures("location")
def test_runs_are_listed_with_the_findings_of_their_comparison(location: str) -> None:
    lab("compare", "0000", "1111")
    lab("compare", "ovs", "\x1b[31mred", "--within", "0000")
    listed = lab("runs").stdout
    assert f"compared with P2P_FABRICATED (00000000): {len(FRAMES)} regression" in listed
    assert "[31mred compared with ovs: " in listed
    lab("compare", "0000", "0000")
    assert lab("runs").stdout == listed
    assert "\x1b" not in listed
    (found,) = json.loads(lab("runs", "--finding", "regression", "--json").stdout)
    assert (found["run_id"], found["comparisons"][0]["baseline_run_id"]) == (NEW.run_id, OLD.run_id)
    assert found["comparisons"][0]["counts"] == {"regression": len(FRAMES)}
    lab("compare", write(OLD, "old.json"), "1111", "--limit", "0.001")
    with ResultStore(location) as results:
        assert len(results.comparisons(NEW.run_id)) == 1


@pytest.mark.usefixtures("location")
def test_a_comparison_and_a_run_are_written_as_junit_xml() -> None:
    lab("compare", "0000", "1111", "--junit", "results.xml", "--fail-on-regression", status=REGRESSION)
    assert f'failures="{len(FRAMES)}"' in Path("results.xml").read_text()
    assert 'failures="0"' in lab("report", "1111", "--format", "junit").stdout
    with pytest.raises(ReportError, match="cannot be written"):
        lab("compare", "0000", "1111", "--junit", "no folder/results.xml")


@pytest.mark.usefixtures("location")
def test_lists_are_reported_as_json() -> None:
    lab("baseline", "set", "release", "0000")
    assert [entry["name"] for entry in json.loads(lab("baseline", "list", "--json").stdout)] == ["release"]
    runs = json.loads(lab("runs", "--json").stdout)
    assert [(run["run_id"], run["baselines"]) for run in runs] == [(NEW.run_id, []), (OLD.run_id, ["release"])]
    assert json.loads(lab("token", "list", "--json").stdout) == []


@pytest.mark.usefixtures("location")
def test_devices_within_a_run_are_compared() -> None:
    compared = lab("compare", "ovs", "\x1b[31mred", "--within", "0000").stdout
    assert "no difference" in compared
    assert "\x1b" not in compared
    with pytest.raises(ReportError, match="no device"):
        lab("compare", "ovs", "ovs2", "--within", "0000")


def test_runs_are_copied_between_stores_by_files(location: str, tmp_path: Path) -> None:
    lab("export", "latest", "0000", "--output", "runs.json")
    other = str(tmp_path / "other.db")
    assert lab("import", "runs.json", "--store", other).stdout == "2 added, 0 already exist\n"
    assert lab("import", "runs.json", "--store", other).stdout == "0 added, 2 already exist\n"
    with ResultStore(other) as copy, ResultStore(location) as original:
        assert [copy.get_run(run_id) for run_id in (OLD.run_id, NEW.run_id)] == [original.get_run(OLD.run_id), NEW]
    with pytest.raises(StoreError, match="has 2 runs"):
        lab("report", "runs.json")


def write(record: RunRecord, name: str) -> str:
    """Write a record to a file."""
    Path(name).write_text(write_records((record,)))
    return name


def test_files_are_compared_without_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert "**regression**" in lab("compare", write(OLD, "old.json"), write(NEW, "new.json")).stdout
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("file", "form"), [("a.html", "html"), ("a.md", "markdown"), ("a.csv", "csv"), ("a.json", "json"), ("a.xml", "junit"), ("a", "html")]
)
def test_the_ending_of_a_report_file_selects_its_format(file: str, form: str) -> None:
    assert isinstance(reporter_of(Path(file)), REPORTERS[form])
