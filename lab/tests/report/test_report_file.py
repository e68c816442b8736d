"""Writing of reports to files."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ringroad_lab.cli.report import write_report
from ringroad_lab.errors import ReportError


def test_a_file_is_replaced_whole_and_no_other_file_stays(tmp_path: Path) -> None:
    file, link = tmp_path / "report.html", tmp_path / "link.html"
    file.write_text("old")
    link.symlink_to(file)
    write_report("new\udc80", link)
    assert file.read_text() == "new?"
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, file]


def test_a_special_file_is_written_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()), daemon=True)
    reader.start()
    write_report("report", pipe)
    assert pipe.is_fifo()
    reader.join()
    assert received == ["report"]


@pytest.mark.parametrize("name", [".", "", "nowhere/report.html", "n" * 300, "n" * 255 + "/x"])
def test_an_unwritable_path_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ReportError, match="cannot be written: "):
        write_report("report", Path(name))
    assert list(tmp_path.iterdir()) == []
