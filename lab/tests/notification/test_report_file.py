"""Reports in a folder, for CI servers that collect files."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from junitparser import JUnitXml

from fabricated_runs import fabricated_run
from ringroad_lab.comparison import compare_runs
from ringroad_lab.errors import ScenarioError
from ringroad_lab.notification.delivery import notify, targets
from ringroad_lab.notification.interface import TemporaryError
from ringroad_lab.notification.message import Notice, Stage
from ringroad_lab.notification.report_file import ReportFile

OLD = fabricated_run(run_id="old-run", name="S", capacities_fps={"ovs": 1e6}, frames=["64"], repetitions=12, latency=False)
NEW = fabricated_run(run_id="../new", name="S", capacities_fps={"ovs": 0.8e6}, frames=["64"], repetitions=12, seed=2, latency=False)


def problems_of(folder: Path, notice: Notice, **more: str) -> list[str]:
    notifier = ReportFile.model_validate({"folder": folder, **more})
    assert notifier.concerns(notice)
    return notify(targets([notifier]), notice, first_wait_s=0.01)


def cases(file: Path) -> list[str]:
    """Return the results of the test cases in a file."""
    return [", ".join(type(result).__name__ for result in case.result) for suite in JUnitXml.fromfile(str(file)) for case in suite]


def test_a_folder_gets_junit_with_the_verdicts(tmp_path: Path) -> None:
    compared = compare_runs(OLD, NEW)
    assert problems_of(tmp_path, Notice(NEW, load_comparison=lambda: compared)) == []
    # The file name stays in the folder, and no temporary file remains.
    (file,) = tmp_path.iterdir()
    assert file.name == "run-.._new.xml"
    assert cases(file) == ["Failure"]
    assert stat.S_ISREG(file.stat().st_mode)
    assert problems_of(tmp_path, Notice(NEW)) == []
    assert cases(file) == [""]


def test_a_request_without_a_verdict_is_reported_as_an_error(tmp_path: Path) -> None:
    for number, (outcome, expected) in enumerate([("dead", "Error"), ("cancelled", "Skipped")]):
        notice = Notice(OLD.model_copy(update={"run_id": f"{number}"}), stage=Stage.ERROR, outcome=outcome, reason="the disk <is> full")
        assert problems_of(tmp_path, notice) == []
        file = tmp_path / f"run-{number}.xml"
        assert cases(file) == [expected]
        assert "the disk &lt;is&gt; full" in file.read_text()


def test_another_form_has_its_own_suffix_and_needs_a_run(tmp_path: Path) -> None:
    assert problems_of(tmp_path, Notice(OLD), form="markdown") == []
    assert (tmp_path / "run-old-run.md").read_text().startswith("# ")
    dead = Notice(None, stage=Stage.ERROR, outcome="dead")
    assert not ReportFile.model_validate({"folder": tmp_path, "form": "markdown"}).concerns(dead)
    assert ReportFile.model_validate({"folder": tmp_path}).concerns(dead)


def test_a_missing_folder_causes_retries_until_it_exists_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    (target,) = targets([ReportFile.model_validate({"folder": folder, "within_s": 60})])
    folder.rmdir()
    deliver, failures = target.sender.deliver, list[str]()

    def deliver_or_create_folder(notice: Notice, delivery: str, within_s: float) -> None:
        try:
            deliver(notice, delivery, within_s)
        except TemporaryError as error:
            failures.append(str(error))
            folder.mkdir()
            raise

    monkeypatch.setattr(target.sender, "deliver", deliver_or_create_folder)
    assert notify([target], Notice(OLD), first_wait_s=0.01) == []
    assert failures == [f"{folder}: No such file or directory"]
    assert [file.name for file in folder.iterdir()] == ["run-old-run.xml"]


def test_an_invalid_form_or_folder_is_reported_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="did you mean 'junit'"):
        targets([ReportFile.model_validate({"folder": tmp_path, "form": "juni"})])
    with pytest.raises(ScenarioError, match="is not a folder"):
        targets([ReportFile.model_validate({"folder": tmp_path / "none"})])
